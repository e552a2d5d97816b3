package merkle

import "ronbox/appliance/b3"

// Tree computes the root of a tree faster than leaf by leaf, several digests at a time. It serves one goroutine, one tree after
// the other, and once it is warm allocates nothing. The zero Tree is ready.
type Tree struct {
	gang  b3.Gang
	level []b3.Digest // the leaves so far; the gang may still owe the last few
}

// Add appends the leaf that holds b. It keeps nothing of b.
func (t *Tree) Add(b []byte) {
	if len(t.level) == cap(t.level) {
		t.gang.Flush() // it knows where the digests are now, and append moves them
	}
	t.level = append(t.level, b3.Digest{})
	t.gang.Add(&t.level[len(t.level)-1], LeafPrefix, b, nil)
}

// Root is the root of the leaves that were added, and begins a new tree.
func (t *Tree) Root() b3.Digest {
	t.gang.Flush()
	level := t.level
	t.level = t.level[:0]
	if len(level) == 0 {
		return b3.Digest{}
	}
	for len(level) > 1 {
		// A node replaces a digest that it, or a node before it, has read.
		pairs := len(level) / 2
		for i := range pairs {
			t.gang.Add(&level[i], nodePrefix, level[2*i][:], level[2*i+1][:])
		}
		n := pairs
		if len(level)%2 == 1 {
			level[n] = level[len(level)-1]
			n++
		}
		t.gang.Flush()
		level = level[:n]
	}
	return level[0]
}
