package logtree

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// grown is a tree of n leaves in memory, and the leaves.
func grown(t testing.TB, n int) (Reader, []tlog.Hash) {
	t.Helper()
	tiles := map[At][]byte{}
	get := func(at At) []byte { return tiles[at] }
	leaves := make([]tlog.Hash, n)
	for i := range leaves {
		leaves[i] = Leaf(fmt.Appendf(nil, "entry %d", i))
		if err := Append(get, uint64(i), leaves[i], func(at At, b []byte) { tiles[at] = b }); err != nil {
			t.Fatal(err)
		}
	}
	return Reader{Tiles: get}, leaves
}

// plainRoot is the definition of RFC 6962.
func plainRoot(leaves []tlog.Hash) tlog.Hash {
	if len(leaves) == 1 {
		return leaves[0]
	}
	k := 1
	for 2*k < len(leaves) {
		k *= 2
	}
	return tlog.NodeHash(plainRoot(leaves[:k]), plainRoot(leaves[k:]))
}

func TestRootsOfEverySize(t *testing.T) {
	r, leaves := grown(t, 700)
	for n := 1; n <= len(leaves); n++ {
		if got, err := r.Root(uint64(n)); err != nil || got != plainRoot(leaves[:n]) {
			t.Fatalf("root of %d: %s, %v", n, got, err)
		}
	}
}

func TestProofsOfAllSizes(t *testing.T) {
	n := 260
	if testing.Short() {
		n = 70
	}
	r, leaves := grown(t, n)
	for size := 1; size <= n; size++ {
		root := plainRoot(leaves[:size])
		for index := range size {
			p, err := r.Inclusion(uint64(size), uint64(index))
			if err != nil || tlog.CheckRecord(p, int64(size), root, int64(index), leaves[index]) != nil {
				t.Fatalf("inclusion of %d in %d: %v", index, size, err)
			}
		}
		for from := 1; from <= size; from++ {
			if err := r.Extends(uint64(from), plainRoot(leaves[:from]), uint64(size), root); err != nil {
				t.Fatalf("consistency of %d with %d: %v", from, size, err)
			}
		}
	}
}

// No proof that was changed is accepted.
func TestChangedProofs(t *testing.T) {
	r, leaves := grown(t, 600)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, len(leaves)).Draw(t, "size")
		index := rapid.IntRange(0, size-1).Draw(t, "index")
		root := plainRoot(leaves[:size])
		p, err := r.Inclusion(uint64(size), uint64(index))
		if err != nil {
			t.Fatal(err)
		}
		at := rapid.IntRange(0, len(p)-1).Draw(t, "at")
		p[at][rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if tlog.CheckRecord(p, int64(size), root, int64(index), leaves[index]) == nil {
			t.Fatal("a changed proof of inclusion is accepted")
		}
		wrong := root
		wrong[0] ^= 1
		if r.Extends(uint64(index+1), plainRoot(leaves[:index+1]), uint64(size), wrong) == nil {
			t.Fatal("another root is accepted")
		}
	})
}

func TestMissingTiles(t *testing.T) {
	none := func(At) []byte { return nil }
	if err := Append(none, 5, tlog.Hash{}, func(At, []byte) {}); err == nil {
		t.Error("a leaf is added behind leaves that are not there")
	}
	if _, err := (Reader{none}).Root(5); err == nil {
		t.Error("a root of nothing")
	}
	r, _ := grown(t, 5)
	if r.Extends(3, tlog.Hash{}, 2, tlog.Hash{}) == nil {
		t.Error("a smaller tree extends a larger one")
	}
}

func TestTilePaths(t *testing.T) {
	for _, tt := range []struct {
		at      At
		width   int
		entries bool
		path    string
	}{
		{At{0, 0}, 256, false, "tile/0/000"}, {At{0, 1234}, 256, false, "tile/0/x001/234"},
		{At{1, 0}, 7, false, "tile/1/000.p/7"}, {At{0, 5}, 3, true, "tile/entries/005.p/3"},
	} {
		if got := Path(tt.at, tt.width, tt.entries); got != tt.path {
			t.Errorf("path %q, want %q", got, tt.path)
		}
		at, width, entries, err := ParsePath(tt.path)
		if err != nil || at != tt.at || width != tt.width || entries != tt.entries {
			t.Errorf("%s: %v %d %t, %v", tt.path, at, width, entries, err)
		}
	}
	for _, bad := range []string{"", "tile/", "tile/8/0/000", "tile/0/1", "tile/0/000.p/256", "tile/0/000.p/0", "tile/-1/000", "tile/data/000", "tile/0/x000/000/", "tile/64/000"} {
		if _, _, _, err := ParsePath(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzParsePath(f *testing.F) {
	f.Add("tile/0/x001/234.p/5")
	f.Add("tile/entries/000")
	f.Fuzz(func(t *testing.T, path string) {
		at, width, entries, err := ParsePath(path)
		if err == nil && Path(at, width, entries) != path {
			t.Errorf("%q is read as %v %d %t", path, at, width, entries)
		}
	})
}
