package below

import "maps"

func Hand(ch chan int) { ch <- 1 }

func Keys(m map[int]int) (n int) {
	for k := range maps.Keys(m) {
		n = k
	}
	return n
}
