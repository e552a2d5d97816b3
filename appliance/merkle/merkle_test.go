package merkle

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The definitions of RFC 6962, word for word.

// naiveRoot is MTH.
func naiveRoot(d []b3.Digest) b3.Digest {
	switch len(d) {
	case 0:
		return b3.Digest{}
	case 1:
		return d[0]
	}
	k := naiveSplit(len(d))
	return Node(naiveRoot(d[:k]), naiveRoot(d[k:]))
}

// naiveSplit is the largest power of two below n.
func naiveSplit(n int) int {
	k := 1
	for 2*k < n {
		k *= 2
	}
	return k
}

// naivePath is PATH.
func naivePath(m int, d []b3.Digest) []b3.Digest {
	if len(d) == 1 {
		return nil
	}
	k := naiveSplit(len(d))
	if m < k {
		return append(naivePath(m, d[:k]), naiveRoot(d[k:]))
	}
	return append(naivePath(m-k, d[k:]), naiveRoot(d[:k]))
}

// naiveProof is SUBPROOF.
func naiveProof(m int, d []b3.Digest, whole bool) []b3.Digest {
	if m == len(d) {
		if whole {
			return nil
		}
		return []b3.Digest{naiveRoot(d)}
	}
	k := naiveSplit(len(d))
	if m <= k {
		return append(naiveProof(m, d[:k], whole), naiveRoot(d[k:]))
	}
	return append(naiveProof(m-k, d[k:], false), naiveRoot(d[:k]))
}

// testLog is a log in memory.
type testLog struct {
	roots, leaves, nodes []b3.Digest
}

func newLog(t testing.TB, size int) *testLog {
	l := &testLog{}
	for i := range size {
		l.append(t, b3.Sum([]byte(fmt.Sprint("root ", i))))
	}
	return l
}

func (l *testLog) append(t testing.TB, root b3.Digest) {
	t.Helper()
	nodes, err := LogNodes(uint64(len(l.roots)), root, l.read)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Pos != uint64(len(l.nodes)) {
			t.Fatalf("leaf %d: a node at %d, %d are stored", len(l.roots), n.Pos, len(l.nodes))
		}
		l.nodes = append(l.nodes, n.Hash)
	}
	l.roots, l.leaves = append(l.roots, root), append(l.leaves, Leaf(root[:]))
	if LogCount(uint64(len(l.roots))) != uint64(len(l.nodes)) {
		t.Fatalf("%d leaves: %d nodes, want %d", len(l.roots), len(l.nodes), LogCount(uint64(len(l.roots))))
	}
}

var errNoNode = errors.New("no such node")

func (l *testLog) read(pos uint64) (b3.Digest, error) {
	if pos >= uint64(len(l.nodes)) {
		return b3.Digest{}, errNoNode
	}
	return l.nodes[pos], nil
}

// Roots, paths and proofs are those of the definitions, for every size and place up to 70.
func TestLogByDefinition(t *testing.T) {
	const most = 70
	l := newLog(t, most)
	for size := range most + 1 {
		root, err := LogRoot(uint64(size), l.read)
		if err != nil || root != naiveRoot(l.leaves[:size]) || root != Root(l.leaves[:size]) {
			t.Fatalf("size %d: root %s, %v", size, root, err)
		}
		for i := range size {
			path, err := LogInclusion(uint64(size), uint64(i), l.read)
			want := naivePath(i, l.leaves[:size])
			if err != nil || !slices.Equal(path, want) || !slices.Equal(Path(l.leaves[:size], uint64(i)), want) {
				t.Fatalf("size %d, leaf %d: %v, %v", size, i, path, err)
			}
			if got, ok := Climb(l.leaves[i], uint64(i), uint64(size), path); !ok || got != root {
				t.Fatalf("size %d, leaf %d: climbs to %s, %v", size, i, got, ok)
			}
		}
		for old := range size + 1 {
			path, err := LogConsistency(uint64(old), uint64(size), l.read)
			if err != nil || old > 0 && !slices.Equal(path, naiveProof(old, l.leaves[:size], true)) {
				t.Fatalf("%d to %d: %v, %v", old, size, path, err)
			}
			if !CheckLogConsistency(uint64(old), uint64(size), naiveRoot(l.leaves[:old]), root, path) {
				t.Fatalf("%d to %d: the proof was refused", old, size)
			}
		}
	}
}

// A path is valid for one leaf, index, size and root only.
func TestClimbRefuses(t *testing.T) {
	l := newLog(t, 40)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Uint64Range(1, 40).Draw(t, "size")
		index := rapid.Uint64Range(0, size-1).Draw(t, "index")
		path, _ := LogInclusion(size, index, l.read)
		root := naiveRoot(l.leaves[:size])
		leaf := l.leaves[index]
		at, as, p := index, size, slices.Clone(path)
		switch rapid.IntRange(0, 4).Draw(t, "change") {
		case 0:
			leaf[rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1
		case 1:
			at = rapid.Uint64Range(0, 64).Filter(func(n uint64) bool { return n != index }).Draw(t, "other index")
		case 2:
			p = append(p, b3.Digest{1})
		case 3:
			if len(p) == 0 {
				t.SkipNow()
			}
			p = p[:len(p)-1]
		case 4:
			if len(p) == 0 {
				t.SkipNow()
			}
			p[rapid.IntRange(0, len(p)-1).Draw(t, "step")][0] ^= 1
		}
		if got, ok := Climb(leaf, at, as, p); ok && got == root {
			t.Fatalf("leaf %d of %d was shown as %d of %d by %d of %d steps", index, size, at, as, len(p), len(path))
		}
	})
}

// A consistency proof is valid for one pair of sizes and roots only.
func TestConsistencyRefuses(t *testing.T) {
	l := newLog(t, 40)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Uint64Range(2, 40).Draw(t, "size")
		old := rapid.Uint64Range(1, size-1).Draw(t, "old")
		path, _ := LogConsistency(old, size, l.read)
		was, is, from, p := naiveRoot(l.leaves[:old]), naiveRoot(l.leaves[:size]), old, slices.Clone(path)
		switch rapid.IntRange(0, 5).Draw(t, "change") {
		case 0:
			was[0] ^= 1
		case 1:
			is[0] ^= 1
		case 2:
			from = rapid.Uint64Range(1, 64).Filter(func(n uint64) bool { return n != old }).Draw(t, "other old")
		case 3:
			p = append(p, b3.Digest{1})
		case 4:
			p = p[:len(p)-1]
		case 5:
			p[rapid.IntRange(0, len(p)-1).Draw(t, "step")][0] ^= 1
		}
		if CheckLogConsistency(from, size, was, is, p) {
			t.Fatalf("%d to %d was shown as from %d by %d of %d steps", old, size, from, len(p), len(path))
		}
	})
	for _, tt := range []struct {
		old, size uint64
		was, is   b3.Digest
		path      []b3.Digest
		want      bool
	}{
		{0, 0, b3.Digest{}, b3.Digest{}, nil, true}, {0, 0, b3.Digest{1}, b3.Digest{1}, nil, false},
		{0, 3, b3.Digest{}, naiveRoot(l.leaves[:3]), nil, true}, {0, 3, b3.Digest{1}, naiveRoot(l.leaves[:3]), nil, false},
		{0, 3, b3.Digest{}, naiveRoot(l.leaves[:3]), []b3.Digest{{}}, false}, {3, 3, naiveRoot(l.leaves[:3]), naiveRoot(l.leaves[:3]), nil, true},
		{3, 3, naiveRoot(l.leaves[:2]), naiveRoot(l.leaves[:3]), nil, false}, {4, 3, naiveRoot(l.leaves[:4]), naiveRoot(l.leaves[:3]), nil, false},
		{3, 4, naiveRoot(l.leaves[:3]), naiveRoot(l.leaves[:4]), nil, false},
	} {
		if got := CheckLogConsistency(tt.old, tt.size, tt.was, tt.is, tt.path); got != tt.want {
			t.Errorf("%d to %d: %v", tt.old, tt.size, got)
		}
	}
}

// A node that cannot be read is an error, never another root.
func TestLogReadFails(t *testing.T) {
	l := newLog(t, 13)
	l.nodes = l.nodes[:5]
	_, rootErr := LogRoot(13, l.read)
	_, pathErr := LogInclusion(13, 12, l.read)
	_, proofErr := LogConsistency(5, 13, l.read)
	_, nodesErr := LogNodes(13, b3.Digest{}, l.read)
	for i, err := range []error{rootErr, pathErr, proofErr, nodesErr} {
		if !errors.Is(err, errNoNode) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if _, err := LogInclusion(3, 3, l.read); err == nil {
		t.Error("a leaf beyond the log was proven")
	}
	if _, err := LogConsistency(4, 3, l.read); err == nil {
		t.Error("a log was shown to begin with a longer one")
	}
}

// A leaf, a node and bare bytes are three things, whatever the length.
func TestLeafAndNode(t *testing.T) {
	for _, n := range []int{0, 1, 64, leafRoom, leafRoom + 1, 5000} {
		b := make([]byte, n)
		if Leaf(b) != b3.Sum(append([]byte{0}, b...)) {
			t.Errorf("the leaf of %d bytes is not the digest of 0x00 and them", n)
		}
	}
	l, r := b3.Digest{1}, b3.Digest{2}
	if Node(l, r) != b3.Sum(slices.Concat([]byte{1}, l[:], r[:])) || Node(l, r) == Leaf(append(l[:], r[:]...)) {
		t.Error("a node is not the digest of 0x01 and its children")
	}
}

// The peaks of a log are all that the nodes of later leaves, and its root, are made of.
func TestLogPeaks(t *testing.T) {
	nodes := map[uint64]b3.Digest{}
	read := func(pos uint64) (b3.Digest, error) { return nodes[pos], nil }
	for size := uint64(0); size < 70; size++ {
		root, _ := LogRoot(size, read)
		var open []b3.Digest
		for _, pos := range LogPeaks(size) {
			open = append(open, nodes[pos])
		}
		if got := fold(open); got != root {
			t.Fatalf("the peaks of %d leaves make %s, the log %s", size, got, root)
		}
		next, _ := LogNodes(size, b3.Sum([]byte{byte(size)}), read)
		for _, n := range next {
			nodes[n.Pos] = n.Hash
		}
	}
}

// A log needs its peaks and the nodes after them alone to prove later leaves: a sibling before them
// is a peak.
func TestLogFromPeaks(t *testing.T) {
	const most = 40
	l := newLog(t, most)
	for old := uint64(1); old <= most; old++ {
		kept := map[uint64]bool{}
		for _, pos := range LogPeaks(old) {
			kept[pos] = true
		}
		read := func(pos uint64) (b3.Digest, error) {
			if pos < LogCount(old) && !kept[pos] {
				return b3.Digest{}, errNoNode
			}
			return l.read(pos)
		}
		for size := old; size <= most; size++ {
			if _, err := LogRoot(size, read); err != nil {
				t.Errorf("root of %d after %d: %v", size, old, err)
			}
			if _, err := LogNodes(size, b3.Digest{}, read); err != nil {
				t.Errorf("leaf %d after %d: %v", size, old, err)
			}
			for index := old; index < size; index++ {
				if _, err := LogInclusion(size, index, read); err != nil {
					t.Errorf("leaf %d of %d after %d: %v", index, size, old, err)
				}
			}
			for from := old; from <= size; from++ {
				if _, err := LogConsistency(from, size, read); err != nil {
					t.Errorf("%d in %d after %d: %v", from, size, old, err)
				}
			}
		}
	}
}
