package iceberg_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/avro/ocf"

	"github.com/fencepost/fencepost/store"
)

// document is a version's metadata, as an engine reads it.
type document struct {
	Current    int64             `json:"current-snapshot-id"`
	Properties map[string]string `json:"properties"`
	Schemas    []struct {
		ID     int `json:"schema-id"`
		Fields []struct {
			ID   int             `json:"id"`
			Name string          `json:"name"`
			Type json.RawMessage `json:"type"`
		} `json:"fields"`
	} `json:"schemas"`
	Snapshots []struct {
		ID      int64             `json:"snapshot-id"`
		List    string            `json:"manifest-list"`
		Summary map[string]string `json:"summary"`
	} `json:"snapshots"`
}

// engine reads an Iceberg table as an engine does: by the schemas that its files have.
type engine struct {
	k  *lake
	st store.Store
}

func (k *lake) engine() *engine { return &engine{k, k.Mem} }

func (e *engine) body(key string) ([]byte, error) {
	b, _, err := store.Read(context.Background(), e.st, key, &store.ReadOptions{Limit: 64 << 20})
	return b, err
}

func (e *engine) document(version int64) (*document, error) {
	b, err := e.body(fmt.Sprintf("file/metadata/v%d.metadata.json", 1_000_000_000+version))
	if err != nil {
		return nil, err
	}
	var d document
	return &d, json.Unmarshal(b, &d)
}

// newest returns the newest version that is there.
func (e *engine) newest() (n int64) {
	for _, key := range e.k.keys() {
		if v, ok := strings.CutPrefix(key, "v"); ok && strings.HasSuffix(key, ".json") {
			i, _ := strconv.ParseInt(strings.TrimSuffix(v, ".metadata.json"), 10, 64)
			n = max(n, i-1_000_000_000)
		}
	}
	return n
}

func (e *engine) avro(url string) ([]map[string]any, error) {
	b, err := e.body(strings.TrimPrefix(url, "mem://bucket/"))
	if err != nil {
		return nil, err
	}
	r, err := ocf.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	var all []map[string]any
	for {
		var v any
		if err := r.Decode(&v); err != nil {
			return all, r.Close()
		}
		all = append(all, v.(map[string]any))
	}
}

// files returns the live files of a snapshot, and checks that they and all that names them are there.
func (e *engine) files(d *document, id int64) (files []string, err error) {
	for _, s := range d.Snapshots {
		if s.ID != id {
			continue
		}
		list, err := e.avro(s.List)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			entries, err := e.avro(m["manifest_path"].(string))
			if err != nil {
				return nil, err
			}
			for _, f := range entries {
				if f["status"].(int32) == 2 {
					continue
				}
				path := f["data_file"].(map[string]any)["file_path"].(string)
				key := strings.TrimPrefix(path, "mem://bucket/")
				if _, _, err := store.Read(context.Background(), e.st, key, &store.ReadOptions{Length: 1}); err != nil {
					return nil, fmt.Errorf("snapshot %d: %w", id, err)
				}
				files = append(files, strings.TrimPrefix(path, location+"/"))
			}
		}
		slices.Sort(files)
		return files, nil
	}
	return nil, fmt.Errorf("there is no snapshot %d", id)
}
