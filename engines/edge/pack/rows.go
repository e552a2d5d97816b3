package pack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/tile"
	"ronbox/store"
)

// The bucket of packs has one row, which holds the results of verifications: reading the files
// again would take long.
var (
	bucket = &store.Bucket{Name: "edge/packs", Class: store.Derived}
	table  = store.NewTable(bucket, store.String[string](), store.CBOR[[]result]()).Summed().Alone()
)

const keyDigests = "digests"

// result is the result of the verification of a pack. It is valid as long as the file has the same
// size, time and inode.
type result struct {
	File   string    `cbor:"1,keyasint"`
	Size   int64     `cbor:"2,keyasint"`
	MTime  int64     `cbor:"3,keyasint"` // Unix ns
	Inode  uint64    `cbor:"4,keyasint"`
	Digest b3.Digest `cbor:"5,keyasint"` // as first read; zero if unknown
	Tiles  uint64    `cbor:"6,keyasint"`
	Fault  string    `cbor:"7,keyasint,omitempty"` // "" if the pack is served
	// The rules of the check, as of Config.rules. An older release wrote none.
	Rules    string    `cbor:"8,keyasint,omitempty"`
	Format   Format    `cbor:"9,keyasint,omitempty"`
	TileSize int       `cbor:"10,keyasint,omitempty"`
	Skipped  uint64    `cbor:"11,keyasint,omitempty"`
	Warnings []warning `cbor:"12,keyasint,omitempty"`
}

// warning is a stored tile.Finding.
type warning struct {
	Code  tile.Code `cbor:"1,keyasint"`
	Text  string    `cbor:"2,keyasint"`
	Count uint64    `cbor:"3,keyasint"`
}

// maxFault bounds the fault in a row, in bytes: a fault may contain text of the file.
const maxFault = 1000

func (r result) stamp() stamp { return stamp{size: r.Size, mtime: r.MTime, inode: r.Inode} }

// checked reports whether the file was checked by the current rules. Otherwise only the digest
// counts.
func (r result) checked() bool { return r.Rules != "" }

// known returns the info of a verified pack with the stored result.
func (r result) known(i Info) Info {
	i.Checked, i.Tiles, i.TileSize, i.Skipped = true, r.Tiles, r.TileSize, r.Skipped
	i.Format = cmp.Or(r.Format, i.Format)
	for _, w := range r.Warnings {
		i.Warnings = append(i.Warnings, tile.Finding{Code: w.Code, Text: w.Text, Count: w.Count})
	}
	i.verified(r.Digest)
	return i
}

// after returns the row after a verification of p. The digest of a file with the same stamp stays
// as it was read first.
func (r result) after(p *Pack, i Info) result {
	digest := i.Digest
	if r.stamp() == p.stamp && !r.Digest.IsZero() {
		digest = r.Digest
	}
	out := result{
		File: i.File, Size: p.stamp.size, MTime: p.stamp.mtime, Inode: p.stamp.inode, Digest: digest, Tiles: i.Tiles,
		Fault: clip(i.Fault), Rules: p.env.cfg.rules(), Format: i.Format,
		TileSize: i.TileSize, Skipped: i.Skipped,
	}
	for _, f := range i.Warnings {
		out.Warnings = append(out.Warnings, warning{f.Code, f.Text, f.Count})
	}
	return out
}

// rememberCmd replaces the row, and deletes other rows, which only a disk fault can create.
type rememberCmd struct{ rows []result }

// Kind returns a name that is stored in the file.
func (rememberCmd) Kind() string { return "edge.packs/1" }

// Apply writes the row.
func (c rememberCmd) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	for key := range r.Range(bucket, nil, nil) {
		if string(key) != keyDigests {
			w.Delete(bucket, key)
		}
	}
	table.Put(w, keyDigests, c.rows)
	return struct{}{}, nil
}

// readRows reads the row, by file name.
func (s *Set) readRows(ctx context.Context) (map[string]result, error) {
	known := map[string]result{}
	err := s.Store.View(ctx, func(r store.Reader) error {
		rows, _ := table.Get(r, keyDigests)
		for _, row := range rows {
			if row.Rules != s.env.cfg.rules() {
				row.Rules = ""
			}
			known[row.File] = row
		}
		return nil
	})
	return known, err
}

// recall is readRows, but logs and drops a row that does not read, and then returns an empty map.
func (s *Set) recall(ctx context.Context) (map[string]result, error) {
	known, err := s.readRows(ctx)
	if !errors.Is(err, store.ErrCorrupt) {
		return known, err
	}
	s.Log.Warn("the bad row of packs is dropped", "reason", err.Error(), "next",
		"every pack is verified again")
	if _, err = store.Commit(ctx, s.Store, store.Work, rememberCmd{}); err != nil {
		s.Log.Warn("the bad row of packs cannot be dropped", "reason", err.Error())
	}
	return map[string]result{}, nil
}

// remember writes the rows of the current generation to the file, unless another caller does so.
// After a failure, or an end of ctx, the next start verifies the packs again.
func (s *Set) remember(ctx context.Context) {
	for s.dirty.Load() && s.saving.CompareAndSwap(false, true) {
		s.dirty.Store(false)
		var rows []result
		g := s.current.Load()
		for _, file := range slices.Sorted(maps.Keys(g.rows)) {
			rows = append(rows, g.rows[file])
		}
		if _, err := store.Commit(ctx, s.Store, store.Work, rememberCmd{rows}); err != nil && ctx.Err() == nil {
			s.Log.Warn("the digests of packs cannot be stored", "reason", err.Error())
		}
		s.saving.Store(false)
		s.moved.Store(struct{}{})
	}
}

// Check reads every row of the bucket of packs and returns an error for the first bad row.
func Check(r store.Reader) error {
	for key, rows := range table.All(r) {
		if key != keyDigests {
			return fmt.Errorf("%w: bucket %s has a row %q", store.ErrCorrupt, bucket.Name, key)
		}
		for i, row := range rows {
			if row.File == "" || row.Size < 0 || i > 0 && rows[i-1].File == row.File {
				return fmt.Errorf("%w: bucket %s, key %q: row %d of %q", store.ErrCorrupt, bucket.Name, key, i,
					row.File)
			}
		}
	}
	return nil
}

// Buckets returns the bucket of packs. Its rows have no checksum in schema 1.
func Buckets() []*store.Bucket { return []*store.Bucket{bucket} }
