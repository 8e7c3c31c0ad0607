package manifest

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
)

// TestGoldenBackup: the format of a backup. A program that does not know what a backup is refuses it.
//
// guard:backup-read-only. Without this check: a job has the wrong URL, and appends to a backup; from
// then on the backup has another history than its log; each later backup to there fails, for as long as
// nobody looks.
func TestGoldenBackup(t *testing.T) {
	f := testFormat()
	f.Requires, f.Backup = []string{"backup"}, true
	b, err := f.encode()
	if err != nil {
		t.Fatal(err)
	}
	want := fixture.Golden(t, "format-backup.json", b)
	if !bytes.Equal(b, want) {
		t.Errorf("encoded\n%s\nthe file has\n%s", b, want)
	}
	if got, err := decodeFormat(want); err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("decoded %+v, %v", got, err)
	}
	for old, says := range map[string]string{
		`"requires": [` + "\n" + `  "backup"` + "\n ]": `requires that programs know [], and its members need ["backup"]`,
		`"backup": true`: `its members need []`,
	} {
		bad := bytes.Replace(want, []byte(old), []byte(`"x": 1`), 1)
		if bytes.Equal(bad, want) {
			t.Fatalf("%s is not there", old)
		}
		_, err := decodeFormat(document.Sum(layout.FormatKey, bad))
		fixture.WantErr(t, err, fence.ErrCorrupt, says)
	}
	if err := document.Decode(layout.FormatKey, want, new(formatDoc), needsFiles); err == nil {
		t.Error("a program without backups reads it")
	}
	both := bytes.Replace(want, []byte(`"backup": true`), []byte(`"backup": true, "files": {"store":"s3://lake/table"}`), 1)
	both = bytes.Replace(both, []byte(`  "backup"`), []byte(`  "backup", "files"`), 1)
	_, err = decodeFormat(document.Sum(layout.FormatKey, both))
	fixture.WantErr(t, err, fence.ErrCorrupt, "a backup has its files in itself")
	// guard:backup-read-only.
	st := memstore.New(nil)
	fixture.Put(t, st, layout.FormatKey, want)
	_, err = quickInit(t.Context(), st)
	fixture.WantErr(t, err, ErrBackup, "fencepost restore")
}

// TestRestored: a log says with which version a restore began it.
func TestRestored(t *testing.T) {
	f := testFormat()
	f.Restored = 7
	b, err := f.encode()
	if err != nil || !bytes.Contains(b, []byte(`"restored": 7`)) {
		t.Errorf("%s, %v", b, err)
	}
	if got, err := decodeFormat(b); err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

// TestGoldenRestoring: the format of a place to which a backup is being restored. A program that does not know that refuses it.
//
// guard:restore-claimed. Without this check: a restore copies slots 1/1 to 1/9; a supervised writer of
// this URL finds format.json and the slots 1/1 to 1/5, and appends 1/6; the record is acknowledged; the
// restore finds another 1/6 there, and the place is damaged for ever.
func TestGoldenRestoring(t *testing.T) {
	f := testFormat()
	f.Requires, f.Restoring, f.Probe = []string{"restoring"}, &Restoring{Version: 7, Run: f.Log}, nil
	b, err := f.encode()
	if err != nil {
		t.Fatal(err)
	}
	want := fixture.Golden(t, "format-restoring.json", b)
	if !bytes.Equal(b, want) {
		t.Errorf("encoded\n%s\nthe file has\n%s", b, want)
	}
	if got, err := decodeFormat(want); err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("decoded %+v, %v", got, err)
	}
	if err := document.Decode(layout.FormatKey, want, new(formatDoc), needsFiles, needsBackup); err == nil {
		t.Error("a program without such restores reads it")
	}
	for old, with := range map[string]string{
		`"requires": [` + "\n" + `  "restoring"` + "\n ]": `"x": 1`,
		`"version":7`:                    `"version":0`,
		`"restoring": {`:                 `"x": {`,
		`  "restoring"` + "\n ]":         `  "restoring", "backup"` + "\n" + ` ], "backup": true`,
		`"run":"` + f.Log.String() + `"`: `"run":"00000000000000000000000000000000"`,
	} {
		bad := bytes.Replace(want, []byte(old), []byte(with), 1)
		if bytes.Equal(bad, want) {
			t.Fatalf("%s is not there", old)
		}
		if _, err := decodeFormat(document.Sum(layout.FormatKey, bad)); !errors.Is(err, fence.ErrCorrupt) {
			t.Errorf("%s: %v", with, err)
		}
	}
	// guard:restore-claimed.
	st := memstore.New(nil)
	fixture.Put(t, st, layout.FormatKey, want)
	if got, err := ReadFormat(t.Context(), st, nil); !errors.Is(err, ErrRestoring) || got.Restoring == nil {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = quickInit(t.Context(), st)
	fixture.WantErr(t, err, ErrRestoring, "fencepost restore")
}
