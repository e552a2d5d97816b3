package index_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
	"ronbox/store"
)

// fill is a command that writes deleted names without the engine.
type fill struct{ from, to int }

func (fill) Kind() string { return "index.test_fill/1" }
func (c fill) Apply(_ store.Reader, at store.Stamp, w *store.Writes) (int, error) {
	for i := c.from; i < c.to; i++ {
		tables.Names.Put(w, fmt.Sprintf("name:n%06d.example", i),
			tables.NameRow{Manifest: digest("x"), Seq: 2, Commit: at.Seq, Deleted: true})
	}
	return 0, nil
}

// maxWalk is the number of rows that a page visits at most.
const maxWalk = 2000

// A page visits at most maxWalk rows, even if most are deleted keys, and the next page continues
// after them.
func TestWalkOfNamesIsBounded(t *testing.T) {
	r := newRig(t, nil).start()
	const rows = 2*maxWalk + 100
	if _, err := store.Commit(r.ctx(), r.store, store.Work, fill{0, rows}); err != nil {
		t.Fatal(err)
	}
	r.put("name:a.example", digest("1"))
	r.put("name:z.example", digest("1"))
	var got []string
	pages, after := 0, ""
	for {
		page, err := r.e.Names(r.ctx(), "", after, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range page.Names {
			got = append(got, n.Key.String())
		}
		pages++
		if page.Next == "" {
			break
		}
		if page.Next <= after || pages > 10 {
			t.Fatalf("page %d goes on after %q, was %q", pages, page.Next, after)
		}
		after = page.Next
	}
	if pages != 3 || strings.Join(got, " ") != "name:a.example name:z.example" {
		t.Errorf("%v in %d pages", got, pages)
	}
}

// A damaged name is listed as damaged on its page, wherever the page ends. All other names are
// listed.
func TestNamesBesideADamagedOne(t *testing.T) {
	for _, limit := range []int{1, 2, 10} {
		r := newRig(t, nil).start()
		for _, n := range []string{"name:a.example", "name:b.example", "name:c.example"} {
			r.put(n, digest("1"))
		}
		row := r.row(tables.NameBucket, "name:b.example")
		r.rewrite(rewrite{row, row.flip(3, false)})
		var all name.NamePage
		for after := ""; ; {
			page, err := r.e.Names(r.ctx(), "", after, limit)
			if err != nil {
				t.Fatal(err)
			}
			all.Names, all.Damaged = append(all.Names, page.Names...), append(all.Damaged, page.Damaged...)
			if after = page.Next; after == "" {
				break
			}
		}
		if len(all.Names) != 2 || len(all.Damaged) != 1 || all.Damaged[0] != "name:b.example" ||
			r.count("index_rows_corrupt_total") != 1 {
			t.Errorf("%+v", all)
		}
	}
}

// Forgetting a key without a row leaves a damaged neighbour with a valid key in place and names it.
// A damaged row with an invalid key is removed.
func TestForgetLeavesTheNeighbour(t *testing.T) {
	for _, inKey := range []bool{false, true} {
		r := newRig(t, nil).start()
		r.put("name:b.example", digest("1"))
		row := r.row(tables.NameBucket, "name:b.example")
		bit := 3
		if inKey {
			bit = 8*len("name:b.exampl") + 7 // a letter that is no letter any more
		}
		r.rewrite(rewrite{row, row.flip(bit, inKey)})
		err := r.e.ForgetName(r.ctx(), alice, key("name:bb.example"), "c")
		bad, damaged := errors.AsType[*store.RowError](err)
		page, listed := r.e.Names(r.ctx(), "", "", 10)
		switch {
		case listed != nil:
			t.Error(listed)
		case inKey && (err != nil || len(page.Damaged) != 0):
			t.Errorf("%v, %+v", err, page)
		case !inKey && (!damaged || string(bad.Key) != "name:b.example" || len(page.Damaged) != 1):
			t.Errorf("%v, %+v", err, page)
		}
	}
}

// A reindex without keys looks up the most requested keys.
func TestReindexOfHotKeys(t *testing.T) {
	o := newOrigin(7)
	bubble(t, origins(o), func(r *rig) {
		if n, err := r.e.Reindex(r.ctx(), alice, nil, "c"); n != 0 || err != nil {
			t.Errorf("nothing is hot: %d, %v", n, err)
		}
		hot, cold := digest("hot"), digest("cold")
		for range hotHits + 1 {
			_, _, _ = r.ask(hot, name.ProvidersOptions{})
			r.e.Settle()
		}
		_, _, _ = r.ask(cold, name.ProvidersOptions{})
		time.Sleep(2 * time.Second) // a sweep of the janitor
		asked := o.sends.Load()
		if n, err := r.e.Reindex(r.ctx(), alice, nil, "c"); n != 1 || err != nil {
			t.Fatalf("%d, %v; hot: %v", n, err, r.e.Meta().Hot)
		}
		time.Sleep(time.Millisecond)
		r.e.Settle()
		if o.sends.Load() != asked+1 || r.count("index_background_total") != 1 {
			t.Errorf("%d calls, %v jobs", o.sends.Load()-asked, r.count("index_background_total"))
		}
		time.Sleep(8 * time.Second) // nearly the time of an answer, from the reindex on
		if set, _, err := r.ask(hot, name.ProvidersOptions{}); err != nil || set.Source != name.SourceCache {
			t.Errorf("hot: %+v, %v", set, err)
		}
	})
}
