// Package cooks has commands.
package cooks

import (
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"ronbox/spices"
	"ronbox/store"
)

type cmd struct {
	m  map[string]int
	ch chan int
	s  spices.Spicer
	f  float64
}

func (c cmd) Apply(r store.Reader, at store.Stamp, w *store.Writes) (int, error) { // want Apply:`varies: .*`
	w.Put("a", r.Get("b"))
	for k := range c.m { // want `Apply reaches the order of a map`
		w.Put(k, "")
	}
	_ = time.Now() // want `Apply reaches a call of time.Now`
	_ = time.Unix(0, 1)
	_ = os.Getenv("X")                 // want `Apply reaches a call of os.Getenv`
	_, _ = rand.Read(nil)              // want `Apply reaches a call of rand.Read`
	_, _ = os.ReadFile("x")            // want `Apply reaches a call of os.ReadFile`
	_ = int(c.f * 2)                   // want `Apply reaches a float`
	_ = float64(len(c.m))              // want `Apply reaches a float`
	_ = slices.Collect(maps.Keys(c.m)) // want `Apply reaches a call of maps.Keys`
	_ = spices.Keys(c.m)               // want `Apply reaches the order of a map \(spices.go:\d+\) by spices.Keys`
	_ = spices.Sum(c.m) + len(spices.Sorted(c.m)) + c.s.Plain()
	_ = c.s.Spice() // want `Apply reaches a call of rand.Int .* by Spicer.Spice`
	spices.Never()  //determinism: for the log alone
	_ = fmt.Sprint(at.Seq)
	c.helper()
	return c.closure(func() { c.third() }), nil
}

func (c cmd) helper() { // want helper:`varies: a goroutine`
	go c.other() // want `Apply reaches a goroutine`
}

func (c cmd) other() { // want other:`varies: a channel`
	c.ch <- 1 // want `Apply reaches a channel`
}

func (c cmd) third() { // want third:`varies: a channel`
	<-c.ch // want `Apply reaches a channel`
}

func (c cmd) closure(f func()) int {
	f()
	return 1 /* want `nothing to excuse` */ //determinism: nothing varies
}

// Elsewhere nothing is asked for.
func (c cmd) outside() time.Time { // want outside:`varies: a call of time.Now`
	return time.Now()
}

type list []int

// Apply is no command's.
func (l list) Apply(n int) time.Time { // want Apply:`varies: a call of time.Now`
	return time.Now()
}
