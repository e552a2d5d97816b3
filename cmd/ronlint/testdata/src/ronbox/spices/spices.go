// Package spices has what varies, for the package above.
package spices

import (
	"maps"
	"math/rand"
	"slices"
	"time"
)

type Spicer interface {
	Spice() int // want Spice:`varies: a call of rand.Int`
	Plain() int
}

type pepper struct{ now func() time.Time }

func (pepper) Spice() int { return roll() } // want Spice:`varies: a call of rand.Int`
func (pepper) Plain() int { return 1 }

func (p pepper) Late() time.Time { return p.now() } // want Late:`varies: a clock`

func roll() int { return rand.Int() } // want roll:`varies: a call of rand.Int \(spices.go:\d+\)`

func Keys(m map[string]int) []string { // want Keys:`varies: the order of a map`
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

func Sum(m map[string]int) (n int) {
	for _, v := range m { //determinism: a sum has no order
		n += v
	}
	return n
}

func Sorted(m map[string]int) []string {
	for range m {
	}
	return slices.Sorted(maps.Keys(m))
}

func Never() time.Time { return time.Now() } // want Never:`varies: a call of time.Now`
