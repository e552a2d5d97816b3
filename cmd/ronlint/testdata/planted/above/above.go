package above

import (
	"sync"

	"ronbox/between"
	"ronbox/store"
)

type top struct {
	mu sync.Mutex
	h  between.Hander
}

func (t *top) Planted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.h.Hand()
}

func (t *top) Apply(store.Reader, store.Stamp, *store.Writes) (int, error) {
	return between.Last(nil), nil
}
