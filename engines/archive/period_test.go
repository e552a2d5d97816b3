package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"ronbox/appliance/b3"
	"ronbox/appliance/host/hosttest"
	"ronbox/engines/archive/history"
	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
)

// period is the file of a closed period.
type period struct {
	path string
	raw  []byte
	object.FileHeader
}

// closes writes the file of a period that follows another one.
func (n *node) closes(no uint64, before *period, size int) *period {
	n.t.Helper()
	p := &period{path: filepath.Join(n.t.TempDir(), "file"), raw: make([]byte, size)}
	for i, draw := 0, rand.New(rand.NewPCG(no, uint64(size))); i < size; i++ {
		p.raw[i] = byte(draw.Uint32())
	}
	if err := os.WriteFile(p.path, p.raw, 0o600); err != nil {
		n.t.Fatal(err)
	}
	sum := b3.Sum(p.raw)
	p.FileHeader = object.FileHeader{Period: no, Statement: b3.Sum(sum[:]), B3: sum, Bytes: int64(size)}
	if before != nil {
		p.Before = before.Statement
	}
	return p
}

// copies copies the parts of a period from one on, and reports whether all were read back.
func (n *node) copies(p *period, from int) (read bool, err error) {
	n.t.Helper()
	read = true
	for of := p.FileHeader; ; {
		if of.Part = from; from == of.Parts() {
			return read, nil
		}
		one, err := n.arc.CopyPart(n.t.Context(), p.path, of)
		if err != nil {
			return false, err
		}
		read = read && one
		from++
	}
}

func (n *node) copied(all ...*period) {
	n.t.Helper()
	for _, p := range all {
		if read, err := n.copies(p, 0); err != nil || !read {
			n.t.Fatalf("period %d: %v, read back: %v", p.Period, err, read)
		}
	}
}

// fetches restores periods into dir.
func (n *node) fetches(dir string, last b3.Digest) (history.RestoredPeriods, error) {
	n.t.Helper()
	return n.history().RestorePeriods(n.t.Context(), dir, history.PeriodsOf{
		Statement: last, Name: func(n uint64) string { return fmt.Sprint(n) }, Options: n.options(),
	})
}

// parts returns the names of the objects of periods.
func (n *node) parts() []string {
	return slices.DeleteFunc(n.objects(), func(name string) bool { return !strings.Contains(name, "/periods/") })
}

// A part that was copied of a damaged file does not count as one of the file that is as it was again.
func TestPartOfADamagedFile(t *testing.T) {
	n := made(t)
	n.pump()
	p := n.closes(1, nil, 2*object.PartSize+5)
	bad := slices.Clone(p.raw)
	bad[object.PartSize+1] ^= 1
	if err := os.WriteFile(p.path, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	n.copied(p)
	if err := os.WriteFile(p.path, p.raw, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := n.copies(p, 0)
	if !errors.Is(err, ErrDiffers) || !strings.Contains(err.Error(), n.parts()[1]) {
		t.Errorf("%v; the second part is damaged", err)
	}
	n.stop()
}

// A copy that a kill has interrupted goes on, and is made once. It is restored byte for byte, and
// neither a prune nor a restore of the database minds it.
func TestPeriodIsCopied(t *testing.T) {
	n := made(t)
	n.put("a", 1)
	n.pump()
	first := n.closes(1, nil, 2*object.PartSize+5)
	second := n.closes(2, first, 10)
	if _, err := n.arc.CopyPart(t.Context(), first.path, first.FileHeader); err != nil {
		t.Fatal(err)
	}
	k := n.killed()
	n.stop()
	k.boot()
	made, _ := os.Stat(filepath.Join(k.root(), k.parts()[0]))
	k.copied(first, second, first)
	if now, _ := os.Stat(filepath.Join(k.root(), k.parts()[0])); !os.SameFile(now, made) {
		t.Error("a part was written again")
	}
	if left, _ := filepath.Glob(filepath.Join(k.dir, Folder, "*.object")); len(k.parts()) != 4 || len(left) > 0 {
		t.Errorf("%q, left %q", k.parts(), left)
	}
	if c := k.sound(); c.Periods != 2 || len(c.Notes) > 0 {
		t.Errorf("%+v", c)
	}
	for i := range 3 { // bases, a year ago
		k.put("a", i)
		k.arc.asked.Store(true)
		k.pump()
		k.aged(365 * day)
	}
	if gone, _, err := k.history().Prune(t.Context(), history.Pruning{Now: time.Now()}); err != nil || gone == 0 {
		t.Errorf("pruned %d: %v", gone, err)
	}
	k.restores(3)
	dir := filepath.Join(t.TempDir(), "new")
	for range 2 {
		out, err := k.fetches(dir, b3.Digest{})
		if err != nil || uint64(len(out.Missing))+out.Cut != 0 || len(out.Files) != 2 || out.Files[1].B3 != first.B3 {
			t.Errorf("%+v, %v", out, err)
		}
	}
	for i, p := range []*period{first, second} {
		if raw, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i+1))); err != nil || string(raw) != string(p.raw) {
			t.Errorf("period %d: %d bytes, %v", p.Period, len(raw), err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*"+"*.restoring")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	if err := os.WriteFile(filepath.Join(dir, "1"), []byte("else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := k.fetches(dir, b3.Digest{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over another file: %v", err)
	}
	k.stop()
}

// Without an identity nobody can read a copy, and all else of it can be checked.
func TestPeriodIsEncrypted(t *testing.T) {
	n := made(t)
	n.pump()
	p := n.closes(1, nil, 100)
	n.copied(p)
	n.stop()
	raw, err := os.ReadFile(filepath.Join(n.root(), n.parts()[0]))
	if err != nil || strings.Contains(string(raw), string(p.raw[:20])) {
		t.Errorf("%v, or it is plain", err)
	}
	c, err := n.history().Verify(t.Context(), history.Options{})
	if err != nil || len(c.Findings) > 0 || c.Periods != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	n.id, err = age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.fetches(t.TempDir(), b3.Digest{}); !errors.Is(err, object.ErrIdentity) {
		t.Errorf("another identity: %v", err)
	}
}

// A change, a cut and a loss of any part is found and named, and nothing is written over it.
func TestPeriodDamageIsFound(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	n := made(t)
	n.pump()
	one := n.closes(1, nil, object.PartSize+5)
	two := n.closes(2, one, 2*object.PartSize+5)
	n.copied(one, two)
	flip := func(raw []byte) []byte { raw[len(raw)/2] ^= 1; return raw }
	cut := func(raw []byte) []byte { return raw[:len(raw)-1] }
	other := func([]byte) []byte { raw, _ := os.ReadFile(filepath.Join(n.root(), n.parts()[0])); return raw }
	for i, name := range n.parts() {
		path := filepath.Join(n.root(), name)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for kind, change := range map[string]func([]byte) []byte{"flip": flip, "cut": cut, "lost": nil, "other": other} {
			if i == 0 && kind == "other" {
				continue // it is itself
			}
			write := func() error { return os.Remove(path) }
			if change != nil {
				write = func() error { return os.WriteFile(path, change(slices.Clone(raw)), 0o600) }
			}
			if err := write(); err != nil {
				t.Fatal(err)
			}
			n.finds(name, kind == "lost" && i == len(n.parts()))
			if p := []*period{one, two}[i/2-i/4]; change != nil {
				if _, err := n.copies(p, 0); !errors.Is(err, ErrDiffers) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s: copied over %s: %v", kind, name, err)
				}
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.sound()
	n.stop()
}

// finds checks that the damage of an object is found. young says that it may be that of a copy which
// is being made.
func (n *node) finds(name string, young bool) {
	n.t.Helper()
	c, err := n.history().Verify(n.t.Context(), n.options())
	named := func(all []history.Finding) bool {
		return slices.ContainsFunc(all, func(f history.Finding) bool { return f.Object == name })
	}
	if err != nil || young && !named(c.Notes) || !young && !named(c.Findings) {
		n.t.Errorf("%s: %+v, %v", name, c, err)
	}
	out, err := n.fetches(n.t.TempDir(), b3.Digest{})
	if uint64(len(out.Missing))+out.Cut == 0 && (err == nil || !strings.Contains(err.Error(), name)) {
		n.t.Errorf("%s: restored, with %v", name, err)
	}
}

// Periods of which some are missing, and of several histories.
func TestPeriodHistories(t *testing.T) {
	n := made(t)
	n.pump()
	one := n.closes(1, nil, 10)
	two, lost := n.closes(2, one, 10), n.closes(2, one, 11)
	three, other := n.closes(3, two, 10), n.closes(3, lost, 12)
	four := n.closes(4, three, 10)
	n.copied(two, four)
	first := []history.Gap{{First: 1, Last: 1}}
	if out, err := n.fetches(t.TempDir(), two.Statement); err != nil || !slices.Equal(out.Missing, first) || out.Cut != 0 {
		t.Errorf("the first is missing: %+v, %v", out, err)
	}
	c, err := n.history().Verify(t.Context(), n.options())
	if err != nil || len(c.Findings) != 2 || !strings.HasSuffix(c.Findings[1].Object, "000003") {
		t.Errorf("the first and the third are missing: %+v, %v", c, err)
	}
	n.copied(one, three, other, lost)
	if c := n.sound(); c.Periods != 6 {
		t.Errorf("%+v", c)
	}
	_, err = n.fetches(t.TempDir(), b3.Digest{})
	several, ok := errors.AsType[*history.HistoriesError](err)
	if !ok || !errors.Is(err, history.ErrHistories) || len(several.Heads) != 2 {
		t.Fatalf("of two histories: %v", err)
	}
	out, err := n.fetches(t.TempDir(), other.Statement)
	if err != nil || len(out.Missing) > 0 || len(out.Files) != 3 || out.Files[1].B3 != lost.B3 {
		t.Errorf("of one: %+v, %v", out, err)
	}
	if _, err := n.fetches(t.TempDir(), b3.Sum(nil)); !errors.Is(err, history.ErrNoPeriod) {
		t.Errorf("of a statement of none: %v", err)
	}
	n.stop()
}

// A target that does not answer is tried again, so often. Other errors are returned at once.
func TestPeriodTargetFails(t *testing.T) {
	n := made(t)
	n.pump()
	p := n.closes(1, nil, 10)
	for err, calls := range map[error]int{target.ErrUnreachable: copyTries, target.ErrDenied: 1, target.ErrFull: 1} {
		to := &counted{flawed: flawed{Target: n.arc.target, create: err}}
		n.arc.target, n.arc.pause = to, func(int) time.Duration { return 0 }
		if _, got := n.copies(p, 0); !errors.Is(got, err) || to.calls != calls {
			t.Errorf("%v after %d calls, want %v after %d", got, to.calls, err, calls)
		}
		to.read = err
		n.arc.unread.Store(0)
		if got := n.arc.Reach(t.Context()); err == target.ErrUnreachable && !errors.Is(got, err) {
			t.Errorf("of a target with %v: %v", err, got)
		}
		n.arc.target = to.Target
	}
	if holds, err := n.arc.HoldsFile(t.Context(), p.FileHeader); err != nil || holds {
		t.Errorf("before: %v, %v", holds, err)
	}
	if s := n.arc.Status(); s.State != StateOK {
		t.Errorf("%+v", s)
	}
	of := n.arc.target
	n.arc.target = &everyOther{Target: of, t: t}
	n.copied(p)
	n.arc.target = of
	holds, err := n.arc.HoldsFile(t.Context(), p.FileHeader)
	if err = errors.Join(err, n.arc.Reach(t.Context())); err != nil || !holds {
		t.Errorf("after: %v, %v", holds, err)
	}
	n.stop()
}

// counted counts the calls of Create.
type counted struct {
	flawed
	calls int
}

func (c *counted) Create(ctx context.Context, name, file string) error {
	c.calls++
	return c.flawed.Create(ctx, name, file)
}

// What may not be read, or was signed by another key, is in the target and counts as not read back.
func TestPeriodIsNotReadBack(t *testing.T) {
	n := made(t)
	n.pump()
	p := n.closes(1, nil, 10)
	of := n.arc.target
	n.arc.target = &putOnly{Target: of}
	for range 2 { // the second time its name is taken
		if read, err := n.copies(p, 0); err != nil || read {
			t.Errorf("%v, read back: %v", err, read)
		}
	}
	n.arc.target = of
	n.copied(p)
	first := n.arc.key.Load().Signer()
	n.rekeyed()
	if read, err := n.copies(p, 0); err != nil || read {
		t.Errorf("of another key: %v, read back: %v", err, read)
	}
	for signer, want := range map[string]error{first: nil, n.arc.key.Load().Signer(): history.ErrSigner} {
		if _, err := n.signedBy(signer); !errors.Is(err, want) {
			t.Errorf("signer %s: %v", signer, err)
		}
	}
	n.stop()
}
