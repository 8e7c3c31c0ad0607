package result

import "flag"

// DirFlag is the flag -results of a test that makes a page. Without it the test measures
// in small, to see that it works.
func DirFlag() *string {
	return flag.String("results", "", "measure in full, and write the page into this folder")
}
