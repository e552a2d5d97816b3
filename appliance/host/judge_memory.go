package host

import (
	"fmt"
	"time"

	"ronbox/appliance/unit"
)

func judgeSwap(in Inputs, areas []SwapArea, g Group, lockable bool) Finding {
	const check = "swap"
	var size int64
	for _, a := range areas {
		if !a.Compressed() {
			size += a.Size
		}
	}
	switch {
	case size == 0 && len(areas) > 0:
		return ok(check, "in compressed memory only")
	case size == 0:
		return ok(check, "none")
	case g.Swap == -1:
		return ok(check, "%s, but none for this control group", bytesText(size))
	case in.Amnesia && in.AllowSwap:
		return warn(check, "swapoff -a, or encrypt it", "%s on disk, by amnesia.allow_swap", bytesText(size))
	case in.Amnesia && lockable:
		return ok(check, "%s on disk, memory can be locked", bytesText(size))
	case in.Amnesia:
		return bad(check, "swapoff -a, or MemorySwapMax=0 or LimitMEMLOCK=infinity in the unit, or set amnesia.allow_swap", "%s on disk may keep what should be forgotten", bytesText(size))
	}
	return ok(check, "%s", bytesText(size))
}

func judgeMemory(in Inputs, m Memory, g Group) Finding {
	const check = "memory"
	room := m.Total
	seen := fmt.Sprintf("%s, %s available", bytesText(m.Total), bytesText(m.Available))
	if g.Memory > 0 && g.Memory < room {
		room = g.Memory
		seen = fmt.Sprintf("%s for this control group", bytesText(room))
	}
	need := int64(littleMemory)
	if in.Amnesia {
		need += in.MaxBytes
	}
	switch {
	case in.Amnesia && room < need:
		return bad(check, "lower amnesia.max_bytes, or give it more memory", "%s, and the database alone may take %s", seen, bytesText(in.MaxBytes))
	case room < need:
		return warn(check, "give it "+bytesText(need)+" or more", "%s", seen)
	case m.Available > 0 && min(m.Available, room) < need:
		return warn(check, "see what else takes memory on this machine", "%s", seen)
	}
	return ok(check, "%s", seen)
}

func judgeFiles(in Inputs, l Limits) Finding {
	const check = "open_files"
	need := uint64(max(in.MaxConns, 0)) + spareFiles
	if l.FilesHard < need {
		return bad(check, fmt.Sprintf("set LimitNOFILE=%d in the unit (ulimit -Hn), or lower server.max_conns", need),
			"%d at most, server.max_conns needs %d", l.FilesHard, need)
	}
	return ok(check, "%d", l.FilesHard)
}

func judgeCPU(l Limits) Finding {
	const check = "cpu"
	if l.Group.CPUs > 0 && l.Group.CPUs <= 1 {
		return warn(check, "give it more than one core: while it is throttled every request waits", "a quota of %.3g cores", l.Group.CPUs)
	}
	if l.Group.CPUs > 0 {
		return ok(check, "%d in use, a quota of %.3g cores", l.Cores, l.Group.CPUs)
	}
	return ok(check, "%d in use", l.Cores)
}

func judgeBacklog(n int64) Finding {
	if n < fewPending {
		return warn("somaxconn", "sysctl -w net.core.somaxconn=4096", "%d connections may wait to be accepted", n)
	}
	return ok("somaxconn", "%d", n)
}

// bytesText is n for people, in whole units once there are ten of them.
func bytesText(n int64) string {
	for _, u := range []int64{1 << 40, 1 << 30, 1 << 20, 1 << 10} {
		if n >= 10*u {
			n = n / u * u
			break
		}
	}
	return unit.Size(n).String()
}

// short is d with three digits or so.
func short(d time.Duration) string {
	for _, u := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= u {
			return d.Round(u / 100).String()
		}
	}
	return d.String()
}
