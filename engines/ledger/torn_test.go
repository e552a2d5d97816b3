package ledger_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/store"
)

// tornPages is the number of pages at the end of the file that are damaged, one at a time.
const tornPages = 48

// A lost or overwritten page does not change any balance. The file does not open, or is no longer
// written, or the reader gets an error, or everything is as after some commit.
func TestTornPages(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	r := newRig(t, nil, func(c *ledger.Config) { c.FlushSlice = 3 }).declare("ron")
	known := map[string]bool{}
	dice := ledgertest.NewDice(7)
	for i := range 60 {
		call := dice.Call()
		for k, out := range r.commit(call...) {
			dice.Note(call[k], out)
		}
		if i%5 == 0 {
			if _, err := r.l.FlushSlice(r.ctx()); err != nil {
				t.Fatal(err)
			}
		}
		known[r.books(people...)] = true
	}
	r.stop()
	whole, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	sound, told := 0, 0
	for _, page := range lastPages(whole) {
		for _, garble := range []func([]byte){
			func(b []byte) { clear(b) },
			func(b []byte) {
				for i := range b {
					b[i] = byte(random.Uint32())
				}
			},
			func(b []byte) { copy(b[len(b)/2:], bytes.Repeat([]byte{0}, len(b)/2)) }, // only the first half was written
		} {
			torn := bytes.Clone(whole)
			garble(torn[page*store.PageSize:][:store.PageSize])
			if is, err := r.tear(torn); err != nil {
				told++
			} else if sound++; !known[is] {
				t.Errorf("page %d: what is read was never so:\n%s", page, is)
			}
		}
	}
	if sound == 0 || told == 0 {
		t.Errorf("%d files were sound, of %d it was told: want some of both", sound, told)
	}
}

// lastPages returns the two meta pages and the last pages in use.
func lastPages(file []byte) []int {
	pages := []int{0, 1}
	for n := len(file)/store.PageSize - 1; n > 1 && len(pages) < tornPages; n-- {
		if len(bytes.Trim(file[n*store.PageSize:][:store.PageSize], "\x00")) > 0 {
			pages = append(pages, n)
		}
	}
	return pages
}

// tear boots from bytes and reads everything. It returns an error if any step reports damage.
func (r *rig) tear(file []byte) (string, error) {
	r.path = filepath.Join(r.t.TempDir(), "torn.db")
	if err := os.WriteFile(r.path, file, 0o600); err != nil {
		r.t.Fatal(err)
	}
	err := r.boot()
	defer r.stop()
	if err != nil {
		return "", err
	}
	if why := r.l.SafeMode(); why != "" {
		return "", ledger.ErrSafeMode
	}
	return r.tryBooks(people...)
}
