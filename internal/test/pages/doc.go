// Package pages finds the code and the commands in the project's documents, and runs the
// commands.
//
// A fenced block of sh is a script. A fenced block of console has commands after "$ " and what
// they print. [Run] runs those of one page in their order, in one shell, as a reader types
// them. In what a command prints, "…" stands for any text of a line, and a line "…" for any
// lines. Any other time, length of time, identity or name of a process is as good as the one
// on the page.
//
// A comment right before a block says what is particular about it:
//
//	<!-- test: skip REASON -->   nothing runs it; the reasons are in [Reasons]
//	<!-- test: root -->          it runs in the root of the tree
//	<!-- test: until TEXT -->    it goes on in the background; the next block waits for TEXT in its output
//	<!-- test: status N -->      it must end with exit status N
//
// A comment that begins with "test: before" has commands that run without being shown. They
// stand for what the reader has and the test has not:
//
//	<!-- test: before
//	seq 10 | fencepost append s3://bucket/orders
//	-->
package pages
