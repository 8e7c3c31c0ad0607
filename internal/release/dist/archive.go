package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"os"
	"slices"
)

// entry is a file of an archive.
type entry struct {
	name string
	body []byte
	mode int64
	dir  bool
}

// archive writes the program with its manual: a zip for Windows, else a tar.
func (r *release) archive(p platform) error {
	name := "fencepost_" + r.version + "_" + p.os + "_" + p.arch
	program, err := os.ReadFile(r.binaries[p])
	if err != nil {
		return err
	}
	own := "fencepost"
	if p.os == "windows" {
		own += ".exe"
	}
	entries := []entry{{name: name + "/" + own, body: program, mode: 0o755}}
	for _, text := range slices.Sorted(maps.Keys(r.texts)) {
		entries = append(entries, entry{name: name + "/" + text, body: r.texts[text], mode: 0o644})
	}
	var b bytes.Buffer
	if p.os == "windows" {
		err = r.zip(&b, entries)
		name += ".zip"
	} else {
		z := gzip.NewWriter(&b)
		if err = r.tar(z, entries); err == nil {
			err = z.Close()
		}
		name += ".tar.gz"
	}
	if err != nil {
		return err
	}
	return r.file(name, b.Bytes())
}

// tar writes entries that belong to root and have the time of the release.
func (r *release) tar(w io.Writer, entries []entry) error {
	t := tar.NewWriter(w)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.body)), ModTime: r.time, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if e.dir {
			h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(e.body); err != nil {
			return err
		}
	}
	return t.Close()
}

func (r *release) zip(w io.Writer, entries []entry) error {
	z := zip.NewWriter(w)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: r.time}
		h.SetMode(os.FileMode(e.mode)) //nolint:gosec // a mode of a file
		f, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := f.Write(e.body); err != nil {
			return err
		}
	}
	return z.Close()
}
