package cloud

import (
	"errors"
	"testing"
)

// A body is its caller's again when Put has returned.
//
// guard:body-taken-back. Nothing may read the caller's memory after Put. Without this: a Put times out
// while net/http still reads its body; the retry is applied, so the writer puts its next object into
// the same memory; the first request goes on, and sends the first part of one object and the last part
// of another. The store refuses that, because the slot is taken and the checksum is wrong; nothing else
// in this library does.
func TestBodyIsTakenBack(t *testing.T) {
	l := Lend([]byte("body"))
	if n, err := l.Read(make([]byte, 2)); n != 2 || err != nil {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	l.TakeBack()
	if n, err := l.Read(make([]byte, 2)); n != 0 || !errors.Is(err, errTakenBack) {
		t.Errorf("read %d bytes after it was taken back, %v", n, err)
	}
	if _, err := l.Seek(0, 0); !errors.Is(err, errTakenBack) {
		t.Errorf("sought after it was taken back: %v", err)
	}
}
