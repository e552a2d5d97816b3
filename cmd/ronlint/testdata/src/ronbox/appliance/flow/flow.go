package flow

import "sync"

type Mutex struct{ mu sync.Mutex }

func (m *Mutex) Lock()   { m.mu.Lock() }   // want Lock:`locks .*`
func (m *Mutex) Unlock() { m.mu.Unlock() } // want Unlock:`frees .*`
