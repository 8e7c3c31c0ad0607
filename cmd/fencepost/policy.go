package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/internal/layout"
)

func (a *app) policyCmd() *cobra.Command {
	var role, partition, files string
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
			if !partitionName.MatchString(partition) {
				return usage("--partition is aws, aws-cn, aws-us-gov or another that begins with aws-, not %q", partition)
			}
			bucket, prefix, err := policyPlace(args[0], partition)
			if err != nil {
				return err
			}
			p, ok := policyOf(role, bucket, prefix)
			switch {
			case !ok:
				return usage("--role is %s or bucket, not %q", strings.Join(slices.Sorted(maps.Keys(rights)), ", "), role)
			case files == "":
				return a.print(p)
			case role == "bucket":
				return usage("--files does not go with --role bucket: engines write to that store too")
			}
			if bucket, prefix, err = policyPlace(files, partition); err != nil {
				return err
			}
			p.withFiles(role, bucket, prefix)
			return a.print(p)
		},
	}
	c.Flags().StringVar(&role, "role", "", "writer, candidate, compactor, reader or bucket")
	c.Flags().StringVar(&files, "files", "", "`URL` of the store for the files of the table, if the log keeps them apart")
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
		// Only where no compactor works. Without this right manifests pile up there.
		{"Prune", deleteObject, []string{layout.ManifestPrefix}},
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
		{"Consume", putObject, []string{layout.ConsumerPrefix}},
	},
}

// conditional are the prefixes of objects that are never written without a condition: all
// but what the probe tries.
var conditional = []string{
	layout.FormatKey, layout.LockPrefix, layout.CompactorLockPrefix, layout.DataPrefix, layout.ManifestPrefix,
	layout.SegmentPrefix, layout.ListPrefix, layout.PinPrefix, layout.FilePrefix, layout.ConsumerPrefix,
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
