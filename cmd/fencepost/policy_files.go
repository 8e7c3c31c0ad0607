package main

import (
	"net/url"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// location is the part of a bucket that a policy is about.
type location struct {
	bucket string // its ARN
	prefix string // as a policy writes it: empty, or with a slash at its end
}

// resources names the objects below some prefixes, or the bucket if there are none. format.json is no
// prefix, and stands for itself.
func (l location) resources(prefixes []string) []string {
	if len(prefixes) == 0 {
		return []string{l.bucket}
	}
	var names []string
	for _, prefix := range prefixes {
		if !strings.HasSuffix(prefix, ".json") {
			prefix += "*"
		}
		names = append(names, l.bucket+"/"+l.prefix+prefix)
	}
	return names
}

// policyPlace returns what a URL means in a policy.
func policyPlace(raw, partition string) (location, error) {
	u, err := url.Parse(raw)
	if err == nil && u.Scheme == "s3" && u.Host != "" && (len(u.Host) < 3 || len(u.Host) > 63) {
		return location{}, usage("the name of the bucket, %q, has %d characters; buckets have names of 3 to 63", u.Host, len(u.Host))
	}
	if err != nil || u.Scheme != "s3" || !bucketName.MatchString(u.Host) || u.User != nil {
		return location{}, usage("policy is for a URL such as s3://bucket/prefix")
	}
	if strings.HasSuffix(u.Host, "-s3alias") {
		return location{}, usage("a policy cannot name an access point by its alias: name the bucket, and replace the ARNs by the access point's")
	}
	if strings.HasSuffix(u.Host, "--x-s3") {
		return location{}, usage("%s is a directory bucket, which has rights for the whole bucket only: allow s3express:CreateSession on it, with s3express:SessionMode ReadOnly for readers that take no snapshots", u.Host)
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		if err := store.CheckKey("policy", prefix); err != nil {
			return location{}, &kindError{errUsage, err}
		}
		prefix = literally.Replace(prefix) + "/"
	}
	return location{"arn:" + partition + ":s3:::" + u.Host, prefix}, nil
}

const (
	// sharedPrefix begins the keys of all but files in a second store.
	sharedPrefix = layout.SharedDir + "/"
	// anyLogFiles begins the keys of the files of any log there, and no others. A policy cannot name the
	// log: its id is not known before it is made.
	anyLogFiles = "????????????????????????????????/0"
)

// filesRights are what roles may do in a second store, which has files only: all of it may be
// read besides. A candidate uses no files.
var filesRights = map[string][]right{
	"writer":    {{"Upload", uploadObject, []string{sharedPrefix, anyLogFiles}}, {"Clean", deleteObject, []string{sharedPrefix + layout.TmpPrefix}}},
	"compactor": {{"Prune", deleteObject, filesSwept}, {"Abort", abortUpload, filesSwept}, listUploads},
	"reader":    {},
	"publisher": {{"Publish", putObject, tableLog}, {"Prune", deleteObject, tableLog}},
	"doctor":    {readRules},
}

var (
	filesSwept = []string{anyLogFiles, sharedPrefix + layout.TmpPrefix}
	tableLog   = []string{strings.TrimPrefix(layout.DeltaPrefix, layout.FilePrefix)}
)

// withoutFiles leaves out what a role may do to files in the log's own store.
func withoutFiles(all []right) (left []right) {
	for _, r := range all {
		had := len(r.prefixes)
		r.prefixes = slices.DeleteFunc(slices.Clone(r.prefixes), func(prefix string) bool {
			return strings.HasPrefix(strings.TrimPrefix(prefix, anyPartition), layout.FilePrefix)
		})
		if had == 0 || len(r.prefixes) > 0 {
			left = append(left, r)
		}
	}
	return left
}
