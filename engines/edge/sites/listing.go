package sites

import (
	"bytes"
	"slices"
	"sync"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/site"
)

// Bounds of the manifests whose objects anyone may cause to be fetched.
const (
	listedMost  = 64      // manifests
	listedFiles = 400_000 // distinct objects of all, 40 bytes each
)

// listing holds the objects of the manifests that this node has opened. A caller without rights
// may cause only these objects to be fetched. The manifests that were opened first are forgotten
// first.
type listing struct {
	mu    sync.Mutex    // a leaf
	all   []*openedSite // oldest first; guarded by mu
	files int           // of all; guarded by mu
}

// openedSite holds the objects of a manifest. It is immutable.
type openedSite struct {
	hint    near.Hint // for its objects, without Most
	objects []Object
}

// Object is an object of a manifest with its size.
type Object struct {
	Digest b3.Digest
	Size   int64
}

// ObjectsOf returns the distinct objects of a manifest, by digest. If a manifest gives one object
// several sizes, the smallest counts.
func ObjectsOf(m *site.Manifest) []Object {
	all := make([]Object, m.Len())
	for i := range all {
		f := m.File(i)
		all[i] = Object{f.Digest, f.Size}
	}
	slices.SortFunc(all, func(a, b Object) int {
		if c := bytes.Compare(a.Digest[:], b.Digest[:]); c != 0 {
			return c
		}
		return int(min(1, max(-1, a.Size-b.Size)))
	})
	return slices.CompactFunc(all, func(a, b Object) bool { return a.Digest == b.Digest })
}

func (l *listing) has(manifest b3.Digest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holds(manifest)
}

// holds is called with mu held.
func (l *listing) holds(manifest b3.Digest) bool {
	return slices.ContainsFunc(l.all, func(one *openedSite) bool { return one.hint.Manifest == manifest })
}

// add adds a manifest, unless another caller has added it meanwhile.
func (l *listing) add(one *openedSite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds(one.hint.Manifest) {
		return
	}
	l.all = append(l.all, one)
	l.files += len(one.objects)
	for len(l.all) > listedMost || l.files > listedFiles && len(l.all) > 1 {
		l.files -= len(l.all[0].objects)
		l.all = slices.Delete(l.all, 0, 1)
	}
}

// hint returns where an object of a manifest is likely stored. ok is false for other objects.
func (l *listing) hint(d b3.Digest) (h near.Hint, ok bool) {
	l.mu.Lock()
	all := slices.Clone(l.all)
	l.mu.Unlock()
	for _, one := range slices.Backward(all) {
		i, found := slices.BinarySearchFunc(one.objects, d, func(o Object, d b3.Digest) int {
			return bytes.Compare(o.Digest[:], d[:])
		})
		if found {
			return one.hint.Sized(one.objects[i].Size), true
		}
	}
	return h, false
}
