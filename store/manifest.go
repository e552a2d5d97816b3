package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
)

// manifestFormat is the number of the manifest's layout.
const manifestFormat = 1

// manifestMax is more than any manifest has, bytes.
const manifestMax = 16 << 20

// manifestSuffix makes the manifest's name out of the snapshot's.
const manifestSuffix = ".manifest.json"

// Manifest tells what a snapshot is, beside it in <snapshot>.manifest.json.
type Manifest struct {
	Format      int               `json:"format"`
	File        string            `json:"file"` // its name, without folder
	NodeID      string            `json:"node_id"`
	Incarnation string            `json:"incarnation"`
	Schema      int               `json:"schema"`
	Seq         uint64            `json:"seq"`
	At          time.Time         `json:"at"`
	PageSize    int               `json:"page_size"`
	Size        int64             `json:"size"`
	B3          b3.Digest         `json:"b3"`
	StateHash   b3.Digest         `json:"state_hash"`
	Buckets     map[string]uint64 `json:"buckets"` // rows by bucket
	Compacted   bool              `json:"compacted,omitzero"`
	Versions    map[string]string `json:"versions,omitempty"` // of the program and its parts
	CAS         *CASList          `json:"cas,omitzero"`

	Path         string `json:"-"` // of the snapshot
	ManifestPath string `json:"-"`
}

// CASList tells what lay beside the file, by content.
type CASList struct {
	Count  uint64    `json:"count"`
	Bytes  int64     `json:"bytes"`
	ListB3 b3.Digest `json:"list_b3"` // of their sorted hashes
}

// ReadManifest reads the manifest beside a snapshot. fs.ErrNotExist is a snapshot, or a database, without one.
func ReadManifest(snapshot string) (Manifest, error) {
	path := snapshot + manifestSuffix
	f, err := os.Open(path)
	if err != nil {
		return Manifest{}, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, manifestMax))
	if err = errors.Join(err, f.Close()); err != nil {
		return Manifest{}, err
	}
	m, err := parseManifest(raw)
	if err != nil {
		return m, fmt.Errorf("manifest %s: %w", path, err)
	}
	m.Path, m.ManifestPath = snapshot, path
	return m, nil
}

// parseManifest is strict: a manifest is written by a program, and read to be believed.
func parseManifest(raw []byte) (m Manifest, err error) {
	if err := json.Unmarshal(raw, &m, json.RejectUnknownMembers(true)); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if m.Format != manifestFormat {
		return Manifest{}, fmt.Errorf("%w: format %d, not %d", ErrSchema, m.Format, manifestFormat)
	}
	return m, nil
}

// describes tells whether what the manifest says of the node is what the file says of itself.
func (m Manifest) describes(i Info) error {
	type who struct {
		node, incarnation string
		schema, pageSize  int
		seq               uint64
	}
	return differ(who{m.NodeID, m.Incarnation, m.Schema, m.PageSize, m.Seq}, who{i.NodeID, i.Incarnation, i.Schema, PageSize, i.Seq})
}

// write puts the manifest in its place, synced.
func (m Manifest) write() error {
	raw, err := json.Marshal(m, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(m.ManifestPath, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(raw, '\n'))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
