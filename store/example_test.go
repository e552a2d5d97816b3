package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ronbox/appliance/flow"
	"ronbox/store"
)

var (
	hits  = &store.Bucket{Name: "example/hits"}
	table = store.NewTable(hits, store.String[string](), store.CBOR[uint64]())
)

// hit is a command that counts a visit to a page.
type hit struct{ Page string }

func (hit) Kind() string { return "example.hit/1" }

func (c hit) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (uint64, error) {
	n, _ := table.Get(r, c.Page)
	table.Put(w, c.Page, n+1)
	return n + 1, nil
}

// A command reads and writes rows in the committer. Commit returns after the sync. A View reads.
func Example() {
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx, path := context.Background(), filepath.Join(dir, "example.db")
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Create(path, id); err != nil {
		fmt.Println(err)
		return
	}
	catalog := flow.NewCatalog(nil, nil)
	s := store.New(store.DefaultConfig(), store.Options{Path: path, Catalog: catalog})
	s.Declare("example", hits)
	if err := s.Open(ctx); err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	if err := s.Prepare(ctx); err != nil {
		fmt.Println(err)
		return
	}
	tasks := flow.NewSupervisor(ctx, catalog, flow.Hooks{})
	tasks.Start(s.Tasks()...)

	for range 2 {
		n, err := store.Commit(ctx, s, store.Work, hit{Page: "/"})
		fmt.Println(n, err)
	}
	err = s.View(ctx, func(r store.Reader) error {
		n, known := table.Get(r, "/")
		fmt.Println(n, known)
		return nil
	})
	fmt.Println(err)
	s.CloseLanes() // the committer ends after the last command
	tasks.Close()
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 2 true
	// <nil>
}
