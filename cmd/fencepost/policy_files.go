package main

import (
	"net/url"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// policyPlace returns the ARN of the bucket of a URL, and the prefix as a policy writes it.
func policyPlace(raw, partition string) (bucket, prefix string, err error) {
	u, err := url.Parse(raw)
	if err == nil && u.Scheme == "s3" && u.Host != "" && (len(u.Host) < 3 || len(u.Host) > 63) {
		return "", "", usage("the name of the bucket, %q, has %d characters; buckets have names of 3 to 63", u.Host, len(u.Host))
	}
	if err != nil || u.Scheme != "s3" || !bucketName.MatchString(u.Host) || u.User != nil {
		return "", "", usage("policy is for a URL such as s3://bucket/prefix")
	}
	if strings.HasSuffix(u.Host, "-s3alias") {
		return "", "", usage("a policy cannot name an access point by its alias: name the bucket, and replace the ARNs by the access point's")
	}
	if strings.HasSuffix(u.Host, "--x-s3") {
		return "", "", usage("%s is a directory bucket, which has rights for the whole bucket only: allow s3express:CreateSession on it, with s3express:SessionMode ReadOnly for readers that take no snapshots", u.Host)
	}
	prefix = strings.Trim(u.Path, "/")
	if prefix != "" {
		if err := store.CheckKey("policy", prefix); err != nil {
			return "", "", &kindError{errUsage, err}
		}
	}
	return "arn:" + partition + ":s3:::" + u.Host, literally.Replace(prefix), nil
}

// sharedPrefix begins the keys of all but files in a second store.
const sharedPrefix = layout.SharedDir + "/"

// filesRights are what roles may do in a second store, which has files only: all of it may be
// read besides. An empty prefix stands for all logs, since nobody knows the log's id before it
// is made.
var filesRights = map[string][]right{
	"writer":    {{"FilesUpload", uploadObject, []string{""}}, {"FilesClean", deleteObject, []string{sharedPrefix}}},
	"compactor": {{"FilesPrune", deleteObject, []string{""}}, {"FilesAbort", []string{"s3:AbortMultipartUpload"}, []string{""}}},
	"reader":    {},
}

// withFiles adds what a role needs in a second store, and leaves out what it needs for files
// in the log's own.
func (p *policy) withFiles(role, bucket, prefix string) {
	own, ok := filesRights[role]
	if !ok {
		return // a candidate uses no files
	}
	for i, s := range p.Statement {
		p.Statement[i].Resource = slices.DeleteFunc(s.Resource, func(name string) bool { return strings.HasSuffix(name, "/"+layout.FilePrefix+"*") })
	}
	p.Statement = slices.DeleteFunc(p.Statement, func(s statement) bool { return len(s.Resource) == 0 })
	root := bucket + "/"
	list := statement{Sid: "FilesList", Effect: "Allow", Action: []string{"s3:ListBucket"}, Resource: []string{bucket}}
	if prefix != "" {
		root += prefix + "/"
		list.Condition = map[string]map[string][]string{"StringLike": {"s3:prefix": {prefix + "/*"}}}
	}
	p.Statement = append(p.Statement, list, statement{Sid: "FilesRead", Effect: "Allow", Action: []string{"s3:GetObject"}, Resource: []string{root + "*"}})
	if role == "compactor" {
		p.Statement = append(p.Statement, statement{Sid: "FilesListUploads", Effect: "Allow", Action: []string{"s3:ListBucketMultipartUploads"}, Resource: []string{bucket}})
	}
	for _, r := range own {
		names := resources(root, r.prefixes)
		if r.prefixes[0] == "" {
			names = []string{root + "*"}
		}
		p.Statement = append(p.Statement, statement{Sid: r.sid, Effect: "Allow", Action: r.actions, Resource: names})
	}
}
