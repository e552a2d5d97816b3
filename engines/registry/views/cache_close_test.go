package views

import (
	"sync"
	"testing"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
)

// Callers that still run when the cache closes find nothing and break nothing.
func TestCacheClosesBesideItsUsers(t *testing.T) {
	for range 20 {
		c := newVersionCache(flow.NewCatalog(nil, nil))
		if err := c.Open(); err != nil {
			t.Fatal(err)
		}
		p := &record.Payload{}
		var users sync.WaitGroup
		for i := range 4 {
			users.Go(func() {
				for n := range 50 {
					key := docKey{version: uint64(i*50 + n)}
					c.putDoc(key, document.Encoded{})
					c.doc(key)
					c.putItems(p, record.Items{})
				}
			})
		}
		c.Close()
		users.Wait()
		if _, ok := c.doc(docKey{}); ok {
			t.Error("a closed cache answers")
		}
	}
}
