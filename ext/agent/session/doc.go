// Package session gives a client that is no Go program what fencepost.Run gives a function: one term.
//
// A [Session] is one client, over any carrier. The carrier is a [Client]: package agent has streams of
// gRPC and Connect, and [Lines] has lines of JSON on standard input and output.
//
// # Guarantees
//
//   - The term lasts as long as the client: it ends when the client leaves, and when the client is silent
//     for longer than it has promised. Nothing renews for a dead client.
//   - The session ends when the term does, and does not lead again. The client connects again, and
//     continues at the cursor that it is told.
//   - Every append gets its outcome, in order: it is in the history for ever, it is certainly not, or nobody
//     knows yet ([EndError]).
//   - Memory is bounded: by the writer's MaxBytes and by 32,768 appends that wait for their outcome. A
//     client that sends more waits. A client that does not read for 15 s loses the term.
//
// A cursor that is a decimal number must not go down: a program that forgets to continue where the history
// ends would append everything twice. Other cursors are bytes that only the client understands.
package session
