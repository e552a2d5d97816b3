package obs

// Report is the table read at one moment.
type Report struct {
	// Ready is what was asked: of one service that all its keys hold, of the node that all hard ones do; with plane "read" only keys of
	// the read plane count.
	Ready bool
	// WriteReady and ReadReady look at hard keys: whether writes, and whether reads, are taken.
	WriteReady bool
	ReadReady  bool
	// Degraded says that some key fails, hard or soft.
	Degraded bool
	// Missing are the failing keys as "service.key", sorted; never nil.
	Missing []string
	// Causes says why, by the same names; never nil.
	Causes map[string]string
	// RetryAfter is the seconds after which to ask again, 0 when Ready.
	RetryAfter int
	// Services has one entry for each service in the report; never nil.
	Services map[string]ServiceReport
}

// ServiceReport is one service's part of a Report.
type ServiceReport struct {
	Ready      bool // all its keys hold
	WriteReady bool // all its hard keys hold
	Missing    []string
}

// Report reads the table. service is "" for the whole node; plane is "", "write" (the same) or "read". A service without keys is not ready.
func (b *Board) Report(service, plane string) Report {
	out := Report{
		Ready: true, WriteReady: true, ReadReady: true,
		Missing: []string{}, Causes: map[string]string{}, Services: map[string]ServiceReport{},
	}
	if b == nil {
		return out
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rows {
		if service != "" && r.Service != service {
			continue
		}
		out.count(r, (r.Hard || service != "") && (r.Plane == ReadPlane || plane != "read"))
	}
	if service != "" && len(out.Services) == 0 {
		out.Ready, out.WriteReady, out.ReadReady = false, false, false
		out.RetryAfter = retryAfter(service)
	}
	return out
}

// count adds one row; counts says whether it bears on Ready.
func (out *Report) count(r *row, counts bool) {
	s, ok := out.Services[r.Service]
	if !ok {
		s = ServiceReport{Ready: true, WriteReady: true, Missing: []string{}}
	}
	if r.cause != nil {
		name := r.Service + "." + r.Key
		out.Degraded = true
		out.Missing = append(out.Missing, name)
		out.Causes[name] = r.cause.Error()
		out.WriteReady = out.WriteReady && !r.Hard
		out.ReadReady = out.ReadReady && (!r.Hard || r.Plane != ReadPlane)
		s.Ready = false
		s.WriteReady = s.WriteReady && !r.Hard
		s.Missing = append(s.Missing, r.Key)
		if counts {
			out.Ready = false
			out.RetryAfter = max(out.RetryAfter, retryAfter(r.Service))
		}
	}
	out.Services[r.Service] = s
}

// retryAfter is how many seconds a service usually takes to be ready again: those close to the user say so soonest.
func retryAfter(service string) int {
	switch service {
	case "edge":
		return 1
	case "wallet", "ledger":
		return 2
	}
	return 5
}
