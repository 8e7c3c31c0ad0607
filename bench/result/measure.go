package result

import "flag"

// DirFlag defines the flag -results of a test that makes a page. Without the flag the
// test measures little, only to see that it works.
func DirFlag() *string {
	return flag.String("results", "", "measure all, and write the page to this `folder`")
}
