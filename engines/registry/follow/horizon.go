package follow

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
)

// maxHorizon bounds the pruned versions of a log that is begun at its horizon: their hashes are in
// memory together, and are written in one command.
const maxHorizon = 1 << 20

// beginning is the horizon of the log of another node. Its versions are verified; its tree and its
// statement are not before check.
type beginning struct {
	rverify.Horizon
	kept  []uint64
	docs  keptDocs // of kept, and version Min
	state rverify.State
	sets  []*record.SignerSet // up to version Min
	tree  *leaves             // up to version Min; later versions are added
}

// keptDocs are versions by their number. They are an rverify.VersionReader.
type keptDocs map[uint64]hubDoc

// Entry returns the entry of a version.
func (k keptDocs) Entry(v uint64) ([]byte, error) { return k[v].entry, nil }

// Payload returns the payload of a version.
func (k keptDocs) Payload(v uint64) ([]byte, error) { return k[v].payload, nil }

func treeProblem(version uint64, format string, args ...any) error {
	return &rverify.Problem{Kind: rverify.KindTree, Version: version, Detail: fmt.Sprintf(format, args...)}
}

// beginAt reads the horizon of a log with a checkpoint of size versions, and moves v to it. The
// error is a *rverify.Problem if the log is bad, and wraps cause if the log is complete, or if it
// was pruned under a newer checkpoint.
func beginAt(ctx context.Context, log PublicLog, v *rverify.Verifier, size uint64, cause error) (*beginning, error) {
	h, err := log.Horizon(ctx)
	b := &beginning{kept: h.Kept, docs: keptDocs{}}
	b.Min, b.Note = h.MinVersion, []byte(h.Statement)
	switch {
	case err != nil:
		return nil, err
	case b.Min <= 1:
		return nil, cause
	case statedTree(b.Note).Size > size:
		return nil, fmt.Errorf("it was pruned after its checkpoint of %d versions: %w", size, cause)
	case b.Min > size:
		return nil, treeProblem(0, "it is complete from version %d on, its checkpoint is of %d versions", b.Min, size)
	case b.Min > maxHorizon:
		return nil, treeProblem(0, "it has pruned %d versions, and at most %d can be left out", b.Min-1, maxHorizon)
	case !ascending(b.kept, b.Min):
		return nil, treeProblem(0, "the versions kept before version %d are not in order", b.Min)
	}
	if err := b.read(ctx, log); err != nil {
		return nil, err
	}
	if err := v.Begin(ctx, b.docs, &b.Horizon, b.kept); err != nil {
		return nil, err
	}
	b.state, _ = v.State()
	return b, b.plant(ctx, log)
}

// atHorizon returns a judgment that begins at the horizon of a log. Its arguments and its error are
// those of beginAt.
func atHorizon(ctx context.Context, log PublicLog, o rverify.Options, size uint64, cause error) (*judgment, error) {
	v := rverify.New(o)
	b, err := beginAt(ctx, log, v, size, cause)
	if err != nil {
		return nil, err
	}
	return &judgment{
		stretch: stretch{begin: b, first: b.Min + 1, docs: hubDocs{first: b.Min + 1}}, next: b.Min + 1,
		v: v, tree: b.tree, sets: b.sets,
	}, nil
}

// ascending reports whether versions begin with 1, ascend, and are all below a version.
func ascending(versions []uint64, below uint64) bool {
	for i, v := range versions {
		if i == 0 && v != 1 || i > 0 && v <= versions[i-1] || v >= below {
			return false
		}
	}
	return len(versions) > 0
}

// versions returns the kept versions and version Min.
func (b *beginning) versions() []uint64 { return append(slices.Clone(b.kept), b.Min) }

// read reads the kept versions, version Min, and its items.
func (b *beginning) read(ctx context.Context, log PublicLog) error {
	bytes := 0
	for versions := range slices.Chunk(b.versions(), followSlice) {
		docs, err := fetchVersions(ctx, log, versions)
		if err != nil {
			return err
		}
		for i, v := range versions {
			if bytes += docs[i].bytes(); bytes > maxKept {
				return treeProblem(v, "the versions kept before version %d have more than %d bytes", b.Min, maxKept)
			}
			b.docs[v] = docs[i]
		}
	}
	raw, err := log.Items(ctx, b.Min)
	if err != nil {
		return err
	}
	items, err := itemsOf(raw)
	b.Items = func() (record.Items, error) { return items, err }
	return nil
}

func itemsOf(raw []jsontext.Value) (record.Items, error) {
	all := make([]record.Item, len(raw))
	for i := range raw {
		var err error
		if all[i], err = record.ParseItem(raw[i]); err != nil {
			return record.Items{}, err
		}
	}
	return record.NewItems(all)
}

// plant reads the hashes of the pruned versions, among which those of the kept ones must be, and
// adds version Min.
func (b *beginning) plant(ctx context.Context, log PublicLog) error {
	b.tree = newLeaves()
	for gone := b.Min - 1; b.tree.size < gone; {
		left := (gone - b.tree.size + logtree.Width - 1) / logtree.Width
		raws := make([][]byte, min(followFlights, left))
		widths := make([]int, len(raws))
		first := b.tree.size
		err := flow.Fan(ctx, len(raws), func(ctx context.Context, i int) (err error) {
			from := first + uint64(i)*logtree.Width
			widths[i] = int(min(logtree.Width, gone-from))
			path := logtree.Path(logtree.At{N: from / logtree.Width}, widths[i], false)
			raws[i], err = log.Tile(ctx, path[len("tile/"):])
			return err
		})
		if err != nil {
			return err
		}
		for i, raw := range raws {
			if len(raw) != widths[i]*tlog.HashSize {
				return treeProblem(0, "a tile of %d hashes has %d bytes", widths[i], len(raw))
			}
			if err := b.tree.addTile(raw); err != nil {
				return err
			}
		}
	}
	for _, v := range b.versions() {
		d, set := b.docs[v], setOf(b.docs[v].payload)
		if v < b.Min {
			if len(set) == 0 || b.tree.leaf(v) != logtree.Leaf(d.entry) {
				return treeProblem(v, "it is no change of signers, or its entry is not in the tree")
			}
		}
		b.sets = append(b.sets, set...)
	}
	return b.tree.add(b.docs[b.Min].entry)
}

// check checks the statement, with the tree and the signer sets up to a checkpoint. sums are those
// of the entries after version Min.
func (b *beginning) check(sets []*record.SignerSet, sums []b3.Digest) error {
	return b.CheckStatement(sets, b.state, logtree.Reader{Tiles: b.tree.tile}, func(v uint64) (b3.Digest, error) {
		switch {
		case v == b.Min:
			return b3.Sum(b.docs[v].entry), nil
		case v > b.Min && v-b.Min <= uint64(len(sums)):
			return sums[v-b.Min-1], nil
		}
		return b3.Digest{}, rverify.ErrMissing
	})
}

// statedTree returns the tree that a statement names, the zero Tree if it cannot be read. It checks
// no signature.
func statedTree(note []byte) checkpoint.Tree {
	text, _, _ := strings.Cut(string(note), "\n\n")
	said, _ := checkpoint.ParseRetention(text + "\n")
	return said.Tree
}
