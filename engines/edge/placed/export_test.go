package placed

import "context"

// Look looks at the placements as the task does, and reports whether nothing had changed.
func (r *Placer) Look(ctx context.Context) (settled bool, err error) {
	if r.plans == nil {
		r.plans = map[string]*plan{}
	}
	v, _ := r.d.Near.View()
	settled = r.settled(ctx, v)
	return settled, r.placeAll(ctx, v, nil)
}
