package between

import "ronbox/below"

type Hander struct{ C chan int }

func (h *Hander) Hand() { below.Hand(h.C) }

func Last(m map[int]int) int { return below.Keys(m) }
