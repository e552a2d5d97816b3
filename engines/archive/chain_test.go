package archive

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/b3"
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
	a := n.arc.key.Load().Signer()
	n.rekeyed()
	n.copied(two)
	b := n.arc.key.Load().Signer()
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
	if _, err := n.arc.CopyPart(t.Context(), three.path, three.FileHeader); err != nil {
		t.Fatal(err)
	}
	if out, err := n.signedBy(a, b); err != nil || len(out.Files) != 2 || out.Cut != 3 {
		t.Errorf("%+v, %v", out, err)
	}
	n.rekeyed()
	if _, err := n.copies(three, 1); err != nil {
		t.Fatal(err)
	}
	last, c := n.parts()[3], n.arc.key.Load().Signer()
	_, err := n.signedBy(a, b)
	if text := fmt.Sprint(err); !errors.Is(err, history.ErrSigner) || !strings.Contains(text, last) {
		t.Errorf("a part of another key: %v", err)
	}
	if out, err := n.signedBy(c, b, a); err != nil || len(out.Files) != 3 || out.Cut != 0 || len(out.Signers) != 3 {
		t.Errorf("%+v, %v", out, err)
	}
	n.stop()
}

// A hole does not make two histories of one: what is there is restored, and what is missing is
// named. A damaged header comes first.
func TestPeriodsWithHoles(t *testing.T) {
	n := made(t)
	n.pump()
	var all []*period
	for no := range uint64(5) {
		var before *period
		if no > 0 {
			before = all[no-1]
		}
		all = append(all, n.closes(no+1, before, 10))
	}
	n.copied(all[0], all[2], all[4])
	for _, head := range []*period{all[2], all[4]} {
		want := []history.Gap{{First: 2, Last: 2}, {First: 4, Last: 4}}[:head.Period/2]
		ask := []b3.Digest{head.Statement, {}}[:1+head.Period/5]
		for _, last := range ask {
			out, err := n.fetches(t.TempDir(), last)
			if err != nil || !slices.Equal(out.Missing, want) || len(out.Files) != len(want)+1 {
				t.Errorf("up to %d: %+v, %v", head.Period, out, err)
			}
		}
	}
	c, err := n.history().Verify(t.Context(), n.options())
	if err != nil || len(c.Findings) != 2 || !strings.HasSuffix(c.Findings[1].Object, "000004") {
		t.Errorf("%+v, %v", c, err)
	}
	n.copied(all[1])
	second := n.parts()[1]
	path := filepath.Join(n.root(), second)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw[:9], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, last := range []b3.Digest{{}, all[2].Statement} {
		out, err := n.fetches(t.TempDir(), last)
		if !errors.Is(err, object.ErrDamaged) || !strings.Contains(fmt.Sprint(err), second) {
			t.Errorf("the header of period 2 is damaged: %+v, %v", out, err)
		}
	}
	if out, err := n.fetches(t.TempDir(), all[0].Statement); err != nil || len(out.Missing) > 0 {
		t.Errorf("before it: %+v, %v", out, err)
	}
	n.stop()
}

// Beyond a hole nothing is restored if the archive has several histories: it is not known of which one
// that is.
func TestPeriodsOfTwoHistoriesWithHoles(t *testing.T) {
	n := made(t)
	n.pump()
	one, other := n.closes(1, nil, 10), n.closes(1, nil, 11)
	two := n.closes(2, other, 10)
	three := n.closes(3, two, 10)
	n.copied(one, other, three)
	if _, err := n.fetches(t.TempDir(), b3.Digest{}); !errors.Is(err, history.ErrHistories) {
		t.Errorf("two first periods: %v", err)
	}
	out, err := n.fetches(t.TempDir(), three.Statement)
	if err != nil || !slices.Equal(out.Missing, []history.Gap{{First: 1, Last: 2}}) {
		t.Errorf("%+v, %v", out, err)
	}
	n.stop()
}

// A copy that a complete one needs is found if its end or all of it is lost, though another history
// has a copy of its number. A cut copy that none needs is a note.
func TestPeriodThatAnotherNeeds(t *testing.T) {
	n := made(t)
	n.pump()
	one, other := n.closes(1, nil, 10), n.closes(1, nil, object.PartSize+5)
	two, second := n.closes(2, one, 10), n.closes(2, other, 11)
	third := n.closes(3, second, 12)
	ended := n.closes(2, other, object.PartSize+6)
	n.copied(one, two, other, second, third)
	if _, err := n.arc.CopyPart(t.Context(), ended.path, ended.FileHeader); err != nil {
		t.Fatal(err)
	}
	if c := n.sound(); len(c.Notes) != 1 {
		t.Errorf("%+v", c)
	}
	away := t.TempDir()
	for _, lost := range [][]string{n.partsOf(other), n.partsOf(other)[1:], n.partsOf(second)} {
		for _, name := range lost {
			if err := os.Rename(filepath.Join(n.root(), name), filepath.Join(away, filepath.Base(name))); err != nil {
				t.Fatal(err)
			}
		}
		c, err := n.history().Verify(t.Context(), n.options())
		if err != nil || !slices.ContainsFunc(c.Findings, func(f history.Finding) bool {
			return strings.HasPrefix(lost[0], f.Object)
		}) {
			t.Errorf("without %q: %+v, %v", lost, c, err)
		}
		for _, name := range lost {
			path := filepath.Join(n.root(), name)
			err := os.MkdirAll(filepath.Dir(path), 0o700)
			err = errors.Join(err, os.Rename(filepath.Join(away, filepath.Base(name)), path))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	n.sound()
	n.stop()
}

// partsOf returns the names of the objects of a period.
func (n *node) partsOf(p *period) []string {
	return slices.DeleteFunc(n.parts(), func(name string) bool {
		return !strings.Contains(name, "/"+hex.EncodeToString(p.B3[:8])+"/")
	})
}

// A damaged first part is the one finding: the others are compared with each other.
func TestPeriodOfDamagedFirstPart(t *testing.T) {
	n := made(t)
	n.pump()
	n.copied(n.closes(1, nil, 3*object.PartSize))
	path := filepath.Join(n.root(), n.parts()[0])
	if err := os.WriteFile(path, []byte("else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := n.history().Verify(t.Context(), n.options()); err != nil || len(c.Findings) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	n.stop()
}
