package main

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

func (a *app) policyCmd() *cobra.Command {
	var role, partition string
	c := &cobra.Command{
		Use:   "policy -role ROLE URL",
		Short: "print an IAM policy with no more rights than a role needs",
		Long: `Policy prints a policy in JSON for a log at s3://bucket/prefix, without asking
anybody: for an IAM user or role, with

  writer     lead and append, make the log, commit files
  candidate  take part in the election only, and prune its locks
  compactor  fold, merge, prune and truncate
  reader     read, and pin what is read

or, with bucket, for the bucket itself: it refuses every write of an object of the
log that is not conditional, whoever sends it; Fencepost sends none.
Leave out statements that you do not need: a reader that never takes a snapshot
needs no pins. KMS keys need statements of their own: kms:GenerateDataKey and
kms:Decrypt for who writes, kms:Decrypt for who reads. Requester pays needs none.
For an access point, name its bucket, and replace the ARNs by the access point's.
A directory bucket knows rights in the whole bucket only, so there is nothing to
print for a log in one.`,
		Args: wantArgs(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			u, err := url.Parse(args[0])
			if err == nil && u.Scheme == "s3" && u.Host != "" && (len(u.Host) < 3 || len(u.Host) > 63) {
				return usage("the name of the bucket, %q, has %d characters; buckets have names of 3 to 63", u.Host, len(u.Host))
			}
			if err != nil || u.Scheme != "s3" || !bucketName.MatchString(u.Host) || u.User != nil {
				return usage("policy is for a URL such as s3://bucket/prefix")
			}
			if strings.HasSuffix(u.Host, "-s3alias") {
				return usage("policies do not know aliases of access points: name the bucket, and replace the ARNs by the access point's")
			}
			if strings.HasSuffix(u.Host, "--x-s3") {
				return usage("%s is a directory bucket, which knows rights in the whole bucket only: allow s3express:CreateSession on it, with s3express:SessionMode ReadOnly for readers that take no snapshots", u.Host)
			}
			if !partitionName.MatchString(partition) {
				return usage("-partition is aws, aws-cn, aws-us-gov or another that begins with aws-, not %q", partition)
			}
			prefix := strings.Trim(u.Path, "/")
			if prefix != "" {
				if err := store.CheckKey("policy", prefix); err != nil {
					return &kindError{errUsage, err}
				}
			}
			p, ok := policyOf(role, "arn:"+partition+":s3:::"+u.Host, literally.Replace(prefix))
			if !ok {
				return usage("-role is %s or bucket, not %q", strings.Join(slices.Sorted(maps.Keys(rights)), ", "), role)
			}
			return a.print(p)
		},
	}
	c.Flags().StringVar(&role, "role", "", "writer, candidate, compactor, reader or bucket")
	c.Flags().StringVar(&partition, "partition", "aws", "of the ARNs: aws, aws-cn, aws-us-gov")
	return c
}

// literally writes a prefix so that IAM takes it for itself: a star in it must not
// stand for other logs.
var literally = strings.NewReplacer("*", "${*}", "?", "${?}", "$", "${$}")

var (
	bucketName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]+$`)
	partitionName = regexp.MustCompile(`^aws(-[a-z]+)*$`)
)

// policy is a document of IAM.
type policy struct {
	Version   string
	Statement []statement
}

type statement struct {
	Sid       string
	Effect    string
	Principal string `json:",omitempty"`
	Action    []string
	Resource  []string
	Condition map[string]map[string][]string `json:",omitempty"`
}

// right says what a role may do to keys of some kinds.
type right struct {
	sid     string
	actions []string
	kinds   []string
}

var (
	putObject    = []string{"s3:PutObject"}
	deleteObject = []string{"s3:DeleteObject"}
	// A large object that its writer gives up is cleaned away.
	uploadObject = []string{"s3:PutObject", "s3:AbortMultipartUpload"}
)

// rights follow from the table of names in docs/format.md: who writes what, and who
// deletes it. Everybody may read all of the log.
var rights = map[string][]right{
	"candidate": {
		{"Elect", putObject, []string{layout.KindLock}},
		{"Measure", putObject, []string{layout.KindTmp}}, {"Prune", deleteObject, []string{layout.KindLock, layout.KindTmp}},
	},
	"writer": {
		{"Create", putObject, []string{layout.FormatKey}},
		{"Elect", putObject, []string{layout.KindLock}},
		{"Append", putObject, []string{layout.KindData, layout.KindManifest}},
		{"Files", uploadObject, []string{layout.KindFile}},
		{"Probe", uploadObject, []string{layout.KindTmp}}, {"Clean", deleteObject, []string{layout.KindTmp}},
	},
	"compactor": {
		{"Elect", putObject, []string{layout.KindCompactorLock}},
		{"Publish", putObject, []string{layout.KindManifest, layout.KindPin}},
		{"Fold", uploadObject, []string{layout.KindSegment + "/" + string(layout.Compactor), layout.KindList + "/" + string(layout.Compactor)}},
		{"Prune", deleteObject, []string{
			layout.KindLock, layout.KindCompactorLock, layout.KindManifest, layout.KindData, layout.KindSegment, layout.KindList, layout.KindPin, layout.KindFile,
			layout.KindTmp,
		}},
		{"Abort", []string{"s3:AbortMultipartUpload"}, []string{layout.KindSegment, layout.KindList, layout.KindFile, layout.KindTmp}},
	},
	"reader": {
		{"Pin", putObject, []string{layout.KindPin}}, {"Unpin", deleteObject, []string{layout.KindPin}},
	},
}

// conditional are the kinds of objects that are never written without a condition:
// all but what the probe tries out.
var conditional = []string{
	layout.FormatKey, layout.KindLock, layout.KindCompactorLock, layout.KindData, layout.KindManifest,
	layout.KindSegment, layout.KindList, layout.KindPin, layout.KindFile,
}

// policyOf makes the policy of a role for the log under a prefix of a bucket.
func policyOf(role, bucket, prefix string) (policy, bool) {
	root := bucket + "/"
	if prefix != "" {
		prefix += "/"
		root += prefix
	}
	if role == "bucket" {
		return policy{"2012-10-17", []statement{{
			// CreateMultipartUpload and UploadPart are PutObject too, and cannot carry a
			// condition; s3:ObjectCreationOperation is false for them.
			Sid: "OnlyConditionalWrites", Effect: "Deny", Principal: "*", Action: putObject, Resource: resources(root, conditional),
			Condition: map[string]map[string][]string{
				"Null": {"s3:if-none-match": {"true"}, "s3:if-match": {"true"}},
				"Bool": {"s3:ObjectCreationOperation": {"true"}},
			},
		}}}, true
	}
	own, ok := rights[role]
	if !ok {
		return policy{}, false
	}
	list := statement{Sid: "List", Effect: "Allow", Action: []string{"s3:ListBucket"}, Resource: []string{bucket}}
	if prefix != "" {
		list.Condition = map[string]map[string][]string{"StringLike": {"s3:prefix": {prefix + "*"}}}
	}
	p := policy{"2012-10-17", []statement{list, {Sid: "Read", Effect: "Allow", Action: []string{"s3:GetObject"}, Resource: []string{root + "*"}}}}
	if role == "compactor" {
		p.Statement = append(p.Statement, statement{Sid: "ListUploads", Effect: "Allow", Action: []string{"s3:ListBucketMultipartUploads"}, Resource: []string{bucket}})
	}
	for _, r := range own {
		p.Statement = append(p.Statement, statement{Sid: r.sid, Effect: "Allow", Action: r.actions, Resource: resources(root, r.kinds)})
	}
	return p, true
}

// resources names the objects of some kinds.
func resources(root string, kinds []string) []string {
	var names []string
	for _, kind := range kinds {
		if kind != layout.FormatKey {
			kind += "/*"
		}
		names = append(names, root+kind)
	}
	return names
}
