package delta

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/fence"
)

// The actions of Delta's protocol, as far as this package writes them.

// action is one line of a commit. One member is set.
type action struct {
	Info     *commitInfo `json:"commitInfo,omitempty"`
	Protocol *protocol   `json:"protocol,omitempty"`
	Meta     *metaData   `json:"metaData,omitempty"`
	Txn      *txn        `json:"txn,omitempty"`
	Domain   *domain     `json:"domainMetadata,omitempty"`
	Add      *add        `json:"add,omitempty"`
	Remove   *remove     `json:"remove,omitempty"`
}

type commitInfo struct {
	Timestamp  int64             `json:"timestamp"`
	Operation  string            `json:"operation"`
	Parameters map[string]string `json:"operationParameters"`
	EngineInfo string            `json:"engineInfo"`
	// Fencepost is what the state must be after this commit. Commits of other programs
	// have none.
	Fencepost *proof `json:"fencepost,omitempty"`
}

// proof tells the state after a commit from every other state.
type proof struct {
	// Nonce makes the bytes of each commit unlike all others.
	Nonce fence.ID `json:"nonce"`
	// Files is how many files are active, and Sum the checksum of the state.
	Files int `json:"files"`
	Sum   sum `json:"sum"`
}

type protocol struct {
	MinReader      int      `json:"minReaderVersion"`
	MinWriter      int      `json:"minWriterVersion"`
	ReaderFeatures []string `json:"readerFeatures,omitempty"`
	WriterFeatures []string `json:"writerFeatures,omitempty"`
}

// ourFeature is a writer feature that no other program has. So they read and do not write.
const ourFeature = "fencepost"

// ours is the protocol of every table of this package. Reader 1 is read by all engines.
func ours() *protocol {
	return &protocol{MinReader: 1, MinWriter: 7, WriterFeatures: []string{"domainMetadata", ourFeature}}
}

func (p *protocol) ours() bool {
	return p != nil && p.MinReader == 1 && p.MinWriter == 7 && len(p.ReaderFeatures) == 0 && slices.Equal(slices.Sorted(slices.Values(p.WriterFeatures)), ours().WriterFeatures)
}

type metaData struct {
	ID          string            `json:"id"`
	Name        string            `json:"name,omitempty"`
	Format      provider          `json:"format"`
	Schema      string            `json:"schemaString"`
	Partition   []string          `json:"partitionColumns"`
	Config      map[string]string `json:"configuration"`
	CreatedTime int64             `json:"createdTime,omitempty"`
}

type provider struct {
	Provider string            `json:"provider"`
	Options  map[string]string `json:"options"`
}

type txn struct {
	App     string `json:"appId"`
	Version uint64 `json:"version"`
	Updated int64  `json:"lastUpdated,omitempty"`
}

type domain struct {
	Domain  string `json:"domain"`
	Config  string `json:"configuration"`
	Removed bool   `json:"removed"`
}

type add struct {
	Path       string             `json:"path"`
	Partition  map[string]*string `json:"partitionValues"`
	Size       int64              `json:"size"`
	Modified   int64              `json:"modificationTime"`
	DataChange bool               `json:"dataChange"`
	Stats      string             `json:"stats,omitempty"`
	Tags       map[string]string  `json:"tags,omitempty"`
}

type remove struct {
	Path       string             `json:"path"`
	Deleted    int64              `json:"deletionTimestamp"`
	DataChange bool               `json:"dataChange"`
	Extended   bool               `json:"extendedFileMetadata,omitempty"`
	Partition  map[string]*string `json:"partitionValues"`
	Size       int64              `json:"size,omitempty"`
}

// logTag is the tag of each file that has the id of its log.
const logTag = "fencepost.log"

// encodeCommit returns a commit: a line for each action.
func encodeCommit(actions []action) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i := range actions {
		if err := enc.Encode(&actions[i]); err != nil {
			return nil, fmt.Errorf("delta: %w", err)
		}
	}
	return b.Bytes(), nil
}

// proofOf returns the proof of a commit, and who wrote it if it has none.
func proofOf(actions []action) (p *proof, by string) {
	for _, a := range actions {
		if a.Info == nil {
			continue
		}
		if a.Info.Fencepost != nil {
			return a.Info.Fencepost, ""
		}
		by = strings.TrimSpace(a.Info.EngineInfo + " " + a.Info.Operation)
	}
	return nil, by
}

const domainPrefix = "fencepost."

// holdAction is a hold as the configuration of a domain, which checkpoints keep.
func holdAction(log fence.ID, h Hold) action {
	b, err := json.Marshal(h)
	if err != nil {
		panic(err) // numbers and texts only
	}
	return action{Domain: &domain{Domain: domainPrefix + log.String(), Config: string(b)}}
}

func (d *domain) hold() (log fence.ID, h Hold, ok bool) {
	id, ok := strings.CutPrefix(d.Domain, domainPrefix)
	if !ok || log.UnmarshalText([]byte(id)) != nil || d.Removed {
		return log, h, false
	}
	return log, h, json.Unmarshal([]byte(d.Config), &h) == nil
}

func cloneValues(m map[string]*string) map[string]*string {
	if m == nil {
		return map[string]*string{}
	}
	return maps.Clone(m)
}
