package store

import (
	"fmt"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// Class says whether a bucket holds truth, or what can be derived from it again. StateHash covers truth alone.
type Class int

// The classes.
const (
	Truth Class = iota
	Derived
)

func (c Class) String() string {
	if c == Derived {
		return "derived"
	}
	return "truth"
}

// Bucket declares one flat table of the file, or with Subs one that holds such tables and no rows of its own. It is immutable and may
// serve many stores.
type Bucket struct {
	Name   string // as the engine's document prints it: "reg/entry"
	Class  Class
	Append bool // keys only grow: pages are filled to the brim
	Subs   bool // it holds sub-buckets alone

	parent *Bucket // of a sub-bucket
}

// Sub names the sub-bucket of a bucket declared with Subs. It is made by the first Put into it, and goes with Writes.Drop. A name that is
// empty or over MaxKey is a bug, and so is a bucket without sub-buckets.
func (b *Bucket) Sub(name string) *Bucket {
	if !b.Subs || name == "" || len(name) > MaxKey {
		panic(fmt.Sprintf("store: no sub-bucket %q of %s: it holds none, or the name is not of 1 to %d bytes", name, b.Name, MaxKey))
	}
	return &Bucket{Name: name, Class: b.Class, Append: b.Append, parent: b}
}

// full is the name that tells a sub-bucket apart from every other bucket: no declared name has a NUL.
func (b *Bucket) full() string {
	if b.parent != nil {
		return b.parent.Name + "\x00" + b.Name
	}
	return b.Name
}

// Buckets of the store itself. They stay out of StateHash, since a restore changes them.
var (
	metaBucket  = &Bucket{Name: "meta", Class: Derived}
	auditBucket = &Bucket{Name: "audit", Class: Derived, Append: true}
)

// ownService is the owner of the store's own buckets and commands.
const ownService = "store"

// declared is a bucket and the service that may write it.
type declared struct {
	*Bucket
	owner string
}

// schema is the set of declared buckets by name; fixed once the store is open.
type schema map[string]declared

func newSchema() schema {
	s := schema{}
	s.add(ownService, metaBucket, auditBucket)
	return s
}

// add panics on a name that is empty, reserved for another owner or declared differently: a bug of the wiring.
func (s schema) add(service string, buckets ...*Bucket) {
	for _, b := range buckets {
		if b.Name == "" || len(b.Name) > 64 || strings.ContainsRune(b.Name, 0) || b.parent != nil || service == "" {
			panic(fmt.Sprintf("store: bucket %q of service %q has no usable name", b.Name, service))
		}
		if old, known := s[b.Name]; known && (old.owner != service || *old.Bucket != *b) {
			panic(fmt.Sprintf("store: bucket %s is declared by %s and %s", b.Name, old.owner, service))
		}
		s[b.Name] = declared{b, service}
	}
}

// made is an error if the file lacks a bucket.
func (s schema) made(tx *bolt.Tx) error {
	for name := range s {
		if tx.Bucket([]byte(name)) == nil {
			return fmt.Errorf("bucket %s is not there", name)
		}
	}
	return nil
}

// sorted lists the declarations in byte order of their names.
func (s schema) sorted() []declared {
	out := make([]declared, 0, len(s))
	for _, d := range s {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b declared) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// truth picks the buckets StateHash covers, in order.
func truth(buckets []*Bucket) []*Bucket {
	out := make([]*Bucket, 0, len(buckets))
	for _, b := range buckets {
		if b.Class == Truth && b.Name != metaBucket.Name && b.Name != auditBucket.Name && b.Name != authName {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b *Bucket) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// authName is the bucket of token keys, declared by the appliance: a restore may change it, so it never counts as state.
const authName = "auth"
