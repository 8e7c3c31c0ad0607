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
		Use:   "policy --role ROLE URL",
		Short: "print an IAM policy with no more rights than a role needs",
		Long: `Policy prints an IAM policy in JSON for a log at s3://bucket/prefix. ROLE is one of

  writer     leads and appends, makes the log, commits files
  candidate  takes part in the election only, and prunes its locks
  compactor  folds, merges, prunes and truncates
  reader     reads, and pins what it reads
  bucket     for the bucket itself: refuses every write of a log's object that is not
             conditional; Fencepost sends none

Leave out statements that you do not need: a reader that takes no snapshots needs no
pins. KMS keys need statements of their own: kms:Decrypt for all roles, and
kms:GenerateDataKey for those that write. Requester pays needs none. For an access
point, name its bucket, and replace the ARNs by those of the access point. A directory
bucket has rights for the whole bucket only, so no policy can be printed for it.

It needs nothing: it sends no request.`,
		Example: "fencepost policy --role writer s3://bucket/orders",
		Args:    wantArgs(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			u, err := url.Parse(args[0])
			if err == nil && u.Scheme == "s3" && u.Host != "" && (len(u.Host) < 3 || len(u.Host) > 63) {
				return usage("the name of the bucket, %q, has %d characters; buckets have names of 3 to 63", u.Host, len(u.Host))
			}
			if err != nil || u.Scheme != "s3" || !bucketName.MatchString(u.Host) || u.User != nil {
				return usage("policy is for a URL such as s3://bucket/prefix")
			}
			if strings.HasSuffix(u.Host, "-s3alias") {
				return usage("a policy cannot name an access point by its alias: name the bucket, and replace the ARNs by the access point's")
			}
			if strings.HasSuffix(u.Host, "--x-s3") {
				return usage("%s is a directory bucket, which has rights for the whole bucket only: allow s3express:CreateSession on it, with s3express:SessionMode ReadOnly for readers that take no snapshots", u.Host)
			}
			if !partitionName.MatchString(partition) {
				return usage("--partition is aws, aws-cn, aws-us-gov or another that begins with aws-, not %q", partition)
			}
			prefix := strings.Trim(u.Path, "/")
			if prefix != "" {
				if err := store.CheckKey("policy", prefix); err != nil {
					return &kindError{errUsage, err}
				}
			}
			p, ok := policyOf(role, "arn:"+partition+":s3:::"+u.Host, literally.Replace(prefix))
			if !ok {
				return usage("--role is %s or bucket, not %q", strings.Join(slices.Sorted(maps.Keys(rights)), ", "), role)
			}
			return a.print(p)
		},
	}
	c.Flags().StringVar(&role, "role", "", "writer, candidate, compactor, reader or bucket")
	completeFlag(c, "role", append(slices.Sorted(maps.Keys(rights)), "bucket")...)
	c.Flags().StringVar(&partition, "partition", "aws", "of the ARNs: aws, aws-cn, aws-us-gov")
	a.jsonFlag(c)
	return c
}

// literally escapes a prefix for IAM: a star in it must not stand for other logs.
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

// right says what a role may do to the objects below some prefixes.
type right struct {
	sid      string
	actions  []string
	prefixes []string
}

var (
	putObject    = []string{"s3:PutObject"}
	deleteObject = []string{"s3:DeleteObject"}
	// The parts of a large object whose upload fails are deleted.
	uploadObject = []string{"s3:PutObject", "s3:AbortMultipartUpload"}
)

// ownCompactor is where a compactor puts what it makes, below segment/ and list/.
const ownCompactor = string(layout.Compactor) + "/"

// rights follow from the table of names in docs/format.md, which says who writes and who
// deletes each object. Every role may read all of the log.
var rights = map[string][]right{
	"candidate": {
		{"Elect", putObject, []string{layout.LockPrefix}},
		{"Prune", deleteObject, []string{layout.LockPrefix}},
	},
	"writer": {
		{"Create", putObject, []string{layout.FormatKey}},
		{"Elect", putObject, []string{layout.LockPrefix}},
		{"Append", putObject, []string{layout.DataPrefix, layout.ManifestPrefix}},
		{"Files", uploadObject, []string{layout.FilePrefix}},
		{"Probe", uploadObject, []string{layout.TmpPrefix}}, {"Clean", deleteObject, []string{layout.TmpPrefix}},
	},
	"compactor": {
		{"Elect", putObject, []string{layout.CompactorLockPrefix}},
		{"Publish", putObject, []string{layout.ManifestPrefix, layout.PinPrefix}},
		{"Fold", uploadObject, []string{layout.SegmentPrefix + ownCompactor, layout.ListPrefix + ownCompactor}},
		{"Prune", deleteObject, []string{
			layout.LockPrefix, layout.CompactorLockPrefix, layout.ManifestPrefix, layout.DataPrefix, layout.SegmentPrefix, layout.ListPrefix,
			layout.PinPrefix, layout.FilePrefix, layout.TmpPrefix,
		}},
		{"Abort", []string{"s3:AbortMultipartUpload"}, []string{layout.SegmentPrefix, layout.ListPrefix, layout.FilePrefix, layout.TmpPrefix}},
	},
	"reader": {
		{"Pin", putObject, []string{layout.PinPrefix}}, {"Unpin", deleteObject, []string{layout.PinPrefix}},
	},
}

// conditional are the prefixes of objects that are never written without a condition: all
// but what the probe tries.
var conditional = []string{
	layout.FormatKey, layout.LockPrefix, layout.CompactorLockPrefix, layout.DataPrefix, layout.ManifestPrefix,
	layout.SegmentPrefix, layout.ListPrefix, layout.PinPrefix, layout.FilePrefix,
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
		p.Statement = append(p.Statement, statement{Sid: r.sid, Effect: "Allow", Action: r.actions, Resource: resources(root, r.prefixes)})
	}
	return p, true
}

// resources names the objects below some prefixes. format.json is none, and stands for
// itself.
func resources(root string, prefixes []string) []string {
	var names []string
	for _, prefix := range prefixes {
		if strings.HasSuffix(prefix, "/") {
			prefix += "*"
		}
		names = append(names, root+prefix)
	}
	return names
}
