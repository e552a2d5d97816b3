package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ronbox/engines/archive/history"
	"ronbox/engines/archive/object"
)

// signedBy restores periods that one of the keys has signed.
func (n *node) signedBy(signers ...string) (history.RestoredPeriods, error) {
	n.t.Helper()
	return n.history().RestorePeriods(n.t.Context(), n.t.TempDir(), history.PeriodsOf{
		Signers: signers, Name: func(n uint64) string { return fmt.Sprint(n) }, Options: n.options(),
	})
}

// rekeyed gives the node another key, as another member of its cluster has.
func (n *node) rekeyed() {
	n.t.Helper()
	n.stop()
	if err := os.Remove(filepath.Join(n.dir, Folder, "archive.key")); err != nil {
		n.t.Fatal(err)
	}
	n.boot()
}

// Members of a cluster that sign each with a key of its own make one chain: it is restored whole, or
// the object is named that no given key has signed.
func TestPeriodsOfTwoSigners(t *testing.T) {
	n := made(t)
	n.pump()
	one := n.closes(1, nil, 10)
	two := n.closes(2, one, 10)
	n.copied(one)
	a := n.arc.key.Signer()
	n.rekeyed()
	n.copied(two)
	b := n.arc.key.Signer()
	names := n.parts()
	for i, signers := range [][]string{{a, b}, nil} {
		out, err := n.signedBy(signers...)
		slices.Sort(out.Signers)
		want := []string{a, b}
		slices.Sort(want)
		if err != nil || len(out.Files) != 2 || out.Cut != 0 || !slices.Equal(out.Signers, want) {
			t.Errorf("%d: %+v, %v", i, out, err)
		}
	}
	for i, signer := range []string{b, a} { // each is of the other's file
		_, err := n.signedBy(signer)
		text := fmt.Sprint(err)
		if !errors.Is(err, history.ErrSigner) || !strings.Contains(text, names[i]) ||
			!strings.Contains(text, []string{a, b}[i]) {
			t.Errorf("%d: %v", i, err)
		}
	}
	three := n.closes(3, two, 2*object.PartSize)
	if _, err := n.arc.CopyPart(t.Context(), three.path, three.FileHeader, 1); err != nil {
		t.Fatal(err)
	}
	if out, err := n.signedBy(a, b); err != nil || len(out.Files) != 2 || out.Cut != 3 {
		t.Errorf("%+v, %v", out, err)
	}
	n.rekeyed()
	if _, err := n.copies(three, 1); err != nil {
		t.Fatal(err)
	}
	last, c := n.parts()[3], n.arc.key.Signer()
	_, err := n.signedBy(a, b)
	if text := fmt.Sprint(err); !errors.Is(err, history.ErrSigner) || !strings.Contains(text, last) {
		t.Errorf("a part of another key: %v", err)
	}
	if out, err := n.signedBy(c, b, a); err != nil || len(out.Files) != 3 || out.Cut != 0 || len(out.Signers) != 3 {
		t.Errorf("%+v, %v", out, err)
	}
	n.stop()
}
