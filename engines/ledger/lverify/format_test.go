package lverify_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// A ledger of another format is refused with its format number and is not changed.
func TestAnotherFormat(t *testing.T) {
	f := newFile(t).open(false)
	all := full(t, 2, 10)
	for _, r := range all {
		switch {
		case string(r.key) == "format":
			r.value[1] = 1
		case string(r.key) == "head":
			r.value[0] = 1
		}
	}
	if _, err := store.Commit(t.Context(), f.s, store.Work, put(all)); err != nil {
		t.Fatal(err)
	}
	if rep := f.verify(lverify.Options{}); len(rep.Findings) != 1 ||
		!strings.Contains(rep.Findings[0].Detail, fmt.Sprintf("is 1, this program knows %d", tables.Format)) {
		t.Errorf("verify: %+v", rep)
	}
	if err := lverify.Rebuild(t.Context(), f.s, lverify.Options{}); !errors.Is(err, store.ErrSchema) {
		t.Errorf("rebuild: %v", err)
	}
	if _, err := lverify.Import(t.Context(), f.s, strings.NewReader(""), lverify.ImportOptions{}); !errors.Is(
		err,
		store.ErrSchema,
	) {
		t.Errorf("import: %v", err)
	}
	f.view(func(r store.Reader) { same(t, rows(r), all) })
}
