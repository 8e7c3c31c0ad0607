package main

import (
	"flag"
	"fmt"
	"log"
	"os"

	"golang.org/x/mod/semver"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	tree := flag.String("tree", "", "a checkout of the project, which is changed")
	proxy := flag.String("proxy", "", "a directory in which to make a module proxy")
	flag.Parse()
	version := flag.Arg(0)
	if *tree == "" || *proxy == "" || flag.NArg() != 1 || !semver.IsValid(version) || semver.Canonical(version) != version {
		log.Print("usage: release -tree DIR -proxy DIR vX.Y.Z")
		os.Exit(2)
	}
	modules, err := prepare(*tree, *proxy, version)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("commit the tree, and tag that commit:")
	for _, m := range modules {
		fmt.Println("git tag " + m.tag(version))
	}
}
