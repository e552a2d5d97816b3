package merkle

import "ronbox/appliance/b3"

// Tree computes roots faster than Root, several digests at a time. It must not be used
// concurrently. It can be reused, and does not allocate once it is warm. The zero Tree is ready to
// use.
type Tree struct {
	gang  b3.Gang
	level []b3.Digest // the leaves so far; the gang may not have computed the last ones
}

// Add appends a leaf with the content b. It does not retain b.
func (t *Tree) Add(b []byte) {
	if len(t.level) == cap(t.level) {
		t.gang.Flush() // before append moves the digests that it writes to
	}
	t.level = append(t.level, b3.Digest{})
	t.gang.Add(&t.level[len(t.level)-1], LeafPrefix, b, nil)
}

// Root returns the root of the added leaves and resets the tree.
func (t *Tree) Root() b3.Digest {
	t.gang.Flush()
	level := t.level
	t.level = t.level[:0]
	if len(level) == 0 {
		return b3.Digest{}
	}
	for len(level) > 1 {
		// A node overwrites a digest that was already read.
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
