package main

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/internal/layout"
)

func (a *app) policyCmd() *cobra.Command {
	var role, partition, files string
	var group bool
	roles := append(slices.Sorted(maps.Keys(rights)), "bucket")
	c := &cobra.Command{
		Use:   "policy --role ROLE [--group] [--files URL] URL",
		Short: "print an IAM policy with no more rights than a role needs",
		Long: `Policy prints an IAM policy in JSON for a log at s3://bucket/prefix. ROLE is one of

  writer     leads and appends, makes the log, commits files
  candidate  takes part in the election only, as exec does, and prunes its locks; in a new
             place it probes the store
  compactor  folds, merges, prunes and truncates
  reader     reads, and pins what it reads
  publisher  publishes the table of files as a Delta Lake table
  doctor     reads, also the bucket's lifecycle rules and uploads, and probes the store:
             for doctor and verify
  bucket     for the bucket itself: refuses unconditional writes of the objects of a log or
             a group, where Fencepost sends none. It refuses, too, that backup and
             restore replace a large damaged copy

With --group the URL is that of a group of workers. A writer is a worker that writes the
logs of partitions. A candidate is a worker without logs, as of exec --group. A compactor
is one of compact --group, and readers and publishers use the logs of all partitions. The
bucket's policy is the same with --group.

Leave out statements that you do not need: a reader that takes no snapshots needs no
pins, and doctor without --deep needs no probe. KMS keys need statements of their own:
kms:Decrypt for all roles, and kms:GenerateDataKey for those that write. Requester pays
needs none. For an access point, name its bucket, and replace the ARNs by those of the
access point. A directory bucket has rights for the whole bucket only, so no policy can be
printed for it.

It needs nothing: it sends no request.`,
		Example: "fencepost policy --role writer s3://bucket/orders",
		Args:    wantArgs(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			if !partitionName.MatchString(partition) {
				return usage("--partition is aws, aws-cn, aws-us-gov or another that begins with aws-, not %q", partition)
			}
			at, err := policyPlace(args[0], partition)
			switch {
			case err != nil:
				return err
			case !slices.Contains(roles, role):
				return usage("--role is %s, not %q", english.WordSeries(roles, "or"), role)
			case role == "bucket" && files == "":
				return a.print(bucketPolicy(at))
			case role == "bucket":
				return usage("--files does not go with --role bucket: engines write to that store too")
			}
			p, own := policy{Version: policyVersion}, rights[role]
			if group {
				own = groupRights(role)
			}
			beside, second := filesRights[role]
			if second = second && files != ""; second {
				own = withoutFiles(own)
			}
			p.allow(at, "", own)
			if second {
				if at, err = policyPlace(files, partition); err != nil {
					return err
				}
				p.allow(at, "Files", beside)
			}
			if b, err := json.Marshal(p); err == nil && len(b) > managedPolicy {
				a.con.note("the policy has %d characters without spaces; a managed policy may have %d. Attach it to a role as an inline policy, or leave out statements", len(b), managedPolicy)
			}
			return a.print(p)
		},
	}
	c.Flags().StringVar(&role, "role", "", strings.Join(roles, ", "))
	c.Flags().BoolVar(&group, "group", false, "for a group of workers, and the logs of its partitions")
	c.Flags().StringVar(&files, "files", "", "`URL` of the store for the files of the table, if the log keeps them apart")
	completeFlag(c, "role", roles...)
	c.Flags().StringVar(&partition, "partition", "aws", "of the ARNs: aws, aws-cn, aws-us-gov")
	a.jsonFlag(c)
	return c
}

// managedPolicy is how many characters a managed policy of IAM may have, spaces apart.
const managedPolicy = 6144

// literally escapes a prefix for IAM: a star in it must not stand for other logs.
var literally = strings.NewReplacer("*", "${*}", "?", "${?}", "$", "${$}")

var (
	bucketName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]+$`)
	partitionName = regexp.MustCompile(`^aws(-[a-z]+)*$`)
)

// policyVersion is that of the language.
const policyVersion = "2012-10-17"

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

// right says what a role may do to the objects below some prefixes, or to the bucket if there are none.
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
	abortUpload  = []string{"s3:AbortMultipartUpload"}

	listUploads = right{"ListUploads", []string{"s3:ListBucketMultipartUploads"}, nil}
	readRules   = right{"ReadRules", []string{"s3:GetLifecycleConfiguration"}, nil}
	// A probe deletes what it has made.
	probes = right{"Probe", uploadObject, []string{layout.TmpPrefix}}
	cleans = right{"Clean", deleteObject, []string{layout.TmpPrefix}}
	pins   = right{"Pin", putObject, []string{layout.PinPrefix}}
	unpins = right{"Unpin", deleteObject, []string{layout.PinPrefix}}
)

const (
	// ownCompactor is where a compactor puts what it makes, below segment/ and list/.
	ownCompactor = string(layout.Compactor) + "/"
	// ownFiles begins the keys of the files of a log's table, but not those of a Delta table's log. In a
	// key an epoch has 20 digits: the first is 0 for all up to 10¹⁹, and elections and int64 end before.
	ownFiles = layout.FilePrefix + "0"
)

// rights follow from the table of names in docs/format.md, which says who writes and who
// deletes each object. Every role may read all of the log.
var rights = map[string][]right{
	"candidate": {
		{"Elect", putObject, []string{layout.LockPrefix}},
		{"Prune", deleteObject, []string{layout.LockPrefix}},
		probes, cleans, // where nobody has led yet
	},
	"writer": {
		{"Create", putObject, []string{layout.FormatKey}},
		{"Elect", putObject, []string{layout.LockPrefix}},
		{"Append", uploadObject, []string{layout.DataPrefix, layout.ManifestPrefix}},
		{"Files", uploadObject, []string{ownFiles}},
		probes, cleans,
		// Only where no compactor works. Without this right manifests pile up there.
		{"Prune", deleteObject, []string{layout.ManifestPrefix}},
	},
	"compactor": {
		{"Elect", putObject, []string{layout.CompactorLockPrefix}},
		{"Publish", putObject, []string{layout.ManifestPrefix, layout.PinPrefix}},
		{"Fold", uploadObject, []string{layout.SegmentPrefix + ownCompactor, layout.ListPrefix + ownCompactor}},
		{"Prune", deleteObject, []string{
			layout.LockPrefix, layout.CompactorLockPrefix, layout.ManifestPrefix, layout.DataPrefix, layout.SegmentPrefix, layout.ListPrefix,
			layout.PinPrefix, ownFiles, layout.TmpPrefix,
		}},
		{"Abort", abortUpload, []string{layout.SegmentPrefix, layout.ListPrefix, ownFiles, layout.TmpPrefix}},
		listUploads,
	},
	"reader": {pins, unpins, {"Consume", putObject, []string{layout.ConsumerPrefix}}},
	"publisher": {
		pins, unpins,
		{"Publish", putObject, []string{layout.DeltaPrefix}},
		{"Prune", deleteObject, []string{layout.DeltaPrefix}},
	},
	"doctor": {readRules, listUploads, probes, cleans},
}

// conditional are the prefixes of a log's objects that are never written without a condition: all
// but what the probe tries.
var conditional = []string{
	layout.FormatKey, layout.LockPrefix, layout.CompactorLockPrefix, layout.DataPrefix, layout.ManifestPrefix,
	layout.SegmentPrefix, layout.ListPrefix, layout.PinPrefix, layout.FilePrefix, layout.ConsumerPrefix,
}

// bucketPolicy refuses writes without a condition, whoever sends them.
func bucketPolicy(at location) policy {
	guarded := slices.Concat(conditional, below(anyPartition, conditional), conditionalGroup, below(layout.CompactorsPrefix+"/", conditionalGroup))
	return policy{policyVersion, []statement{{
		// CreateMultipartUpload and UploadPart are PutObject too, and cannot carry a
		// condition; s3:ObjectCreationOperation is false for them.
		Sid: "OnlyConditionalWrites", Effect: "Deny", Principal: "*", Action: putObject, Resource: at.resources(guarded),
		Condition: map[string]map[string][]string{
			"Null": {"s3:if-none-match": {"true"}, "s3:if-match": {"true"}},
			"Bool": {"s3:ObjectCreationOperation": {"true"}},
		},
	}}}
}

// allow adds what a role may do at one place: every role may read all of it. The names of its
// statements begin with sid, since IAM wants each name once.
func (p *policy) allow(at location, sid string, own []right) {
	list := statement{Sid: sid + "List", Effect: "Allow", Action: []string{"s3:ListBucket"}, Resource: at.resources(nil)}
	if at.prefix != "" {
		list.Condition = map[string]map[string][]string{"StringLike": {"s3:prefix": {at.prefix + "*"}}}
	}
	p.Statement = append(p.Statement, list)
	for _, r := range append([]right{{"Read", []string{"s3:GetObject"}, []string{""}}}, own...) {
		p.Statement = append(p.Statement, statement{Sid: sid + r.sid, Effect: "Allow", Action: r.actions, Resource: at.resources(r.prefixes)})
	}
}
