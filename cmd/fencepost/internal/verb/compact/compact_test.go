package compact

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/leader"
)

// TestCompactFlags: each flag is the option that it says, and without any the defaults
// are the library's.
func TestCompactFlags(t *testing.T) {
	parse := func(args string) compactor.Options {
		t.Helper()
		fl := pflag.NewFlagSet("compact", pflag.ContinueOnError)
		f := compactFlags(fl)
		if err := fl.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		return *f.options(&leader.Options{})
	}
	want := compactor.Options{
		Interval: time.Minute, MinObjects: 2, MaxAge: time.Hour, SegmentBytes: 4 << 20,
		Concurrency: 7, RequestsPerSecond: 8, BytesPerSecond: 9 << 10,
		Retain:       compactor.Retain{Age: 7 * 24 * time.Hour, Records: 10, Bytes: 11},
		KeepVersions: 12, KeepVersionsFor: 14 * 24 * time.Hour,
		Leader: &leader.Options{Prune: leader.PruneOptions{Keep: 13, For: 36 * time.Hour}},
	}
	got := parse("--watch --interval 1m --min-objects 2 --max-age 1h --segment-bytes 4MiB" +
		" --concurrency 7 --requests-per-second 8 --bytes-per-second 9KiB --retain-age 7d --retain-records 10 --retain-bytes 11" +
		" --keep-versions 12 --keep-versions-for 2w --keep-locks 13 --keep-locks-for 1d12h")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\n%+v", got, want)
	}
	defaults := compactor.Options{
		Interval: 10 * time.Second, MinObjects: 64, MaxAge: time.Minute, Concurrency: 16,
		Leader: &leader.Options{Prune: leader.PruneOptions{Keep: 1000, For: 90 * 24 * time.Hour}},
	}
	if got := parse("--idle-interval 1h"); got.IdleInterval != time.Hour {
		t.Errorf("%+v", got)
	}
	if got := parse(""); !reflect.DeepEqual(got, defaults) {
		t.Errorf("%+v\n%+v", got, defaults)
	}
}
