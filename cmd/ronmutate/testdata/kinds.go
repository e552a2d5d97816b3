// Package kinds has one of everything that is changed, and of what is not.
package kinds

import "errors"

const (
	size = 3 * 0x10
	mask = 1<<4 | 2
)

type logger interface {
	Warn(words string, args ...any)
}

type keeper struct {
	log    logger
	n      int
	open   bool
	byName map[string]int
}

func (k *keeper) conditions(a, b int, words ...string) bool {
	if a < b && !k.open || a == b {
		return true
	}
	if !k.open {
		return false
	}
	switch {
	case a >= b, len(words) != 0:
		return k.n&^mask > 0
	}
	switch a {
	case 7:
		return len("0 == 1") == 6
	}
	return false
}

func (k *keeper) loops(all []int, more func() bool) (sum int) {
	for i := 0; i < len(all); i++ {
		if all[i]%2 == 0 {
			continue
		}
		sum += all[i] - 1
	}
	for more() {
		if k.n++; k.n > size {
			break
		}
	}
	return sum
}

func (k *keeper) statements(name string) (int, error) {
	defer k.shut()
	k.open = true
	k.byName[name] = len(name) + 1
	k.shut()
	_ = k.loops(nil, nil)
	n, err := k.n, error(nil)
	if err != nil {
		return 0, err
	}
	func() error {
		return errors.Join(err, nil)
	}()
	return n, nil
}

func (k *keeper) shut() { k.open = false }

func (k *keeper) leftAlone(cap int) ([]int, map[int]int) {
	if k.n == cap {
		k.log.Warn("full", "n", k.n+1)
		panic("kinds: " + string(rune(k.n-1)))
	}
	return make([]int, 4, cap+1), make(map[int]int, 2*cap)
}
