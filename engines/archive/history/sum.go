package history

import (
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines/archive/object"
	"ronbox/store"
)

// baseSum compares the parts of a base with its manifest.
type baseSum struct {
	manifest store.Manifest
	hash     *b3.Hasher
	size     int64
}

// add adds the plain bytes of part n, which are nil if they could not be read.
func (s *baseSum) add(n int, plain []byte) (err error) {
	if n == 0 && plain != nil {
		s.hash = b3.New()
		if s.manifest, plain, err = cutManifest(plain); err != nil {
			s.hash = nil
			return err
		}
	}
	if s.hash != nil {
		_, _ = s.hash.Write(plain) // never fails
		s.size += int64(len(plain))
	}
	return nil
}

// check returns ErrDamaged if the parts are not those of the manifest.
func (s *baseSum) check() error {
	if s.hash == nil || s.size == s.manifest.Size && s.hash.Sum32() == s.manifest.B3 {
		return nil
	}
	return fmt.Errorf("%w: its parts differ from its manifest", object.ErrDamaged)
}
