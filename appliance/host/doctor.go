package host

import (
	"context"
	"time"
)

// Inputs are what the node is going to need of the machine.
type Inputs struct {
	DataDir      string
	Bind         string // address of the HTTP listener; "" is not looked at
	Running      bool   // a node runs here already: its port is taken, and by it
	MaxBytes     int64  // what the database may grow to; with Amnesia in memory
	MinFree      int64  // what the disk must keep free
	Held         int64  // what the database takes of the disk already
	MaxConns     int
	Amnesia      bool
	AllowSwap    bool
	AllowNetwork bool
}

const (
	// syncSamples are enough for a median and few enough for a slow disk: 32 syncs of 30 ms are a second.
	syncSamples = 32
	// syncBudget ends the sampling of a very slow disk early.
	syncBudget = 2 * time.Second
)

// Doctor looks at everything the node depends on. It changes nothing but a temporary file in the data directory, and takes some
// hundred milliseconds, or as long as the disk does.
func Doctor(ctx context.Context, in Inputs) []Finding {
	out := []Finding{checkFolder(in)}
	if in.Bind != "" {
		out = append(out, judgePort(in, PortFree(ctx, in.Bind)))
	}
	out = append(out, Glance(in)...)
	if !in.Amnesia { // else nothing is written there
		out = append(out, checkSpace(in), checkSync(ctx, in))
	}
	return append(out, checkClock(), checkBacklog())
}

// Glance looks at what a boot should tell of: it only reads, and takes a millisecond or so.
func Glance(in Inputs) []Finding {
	return []Finding{checkFileSystem(in), checkKernel(), checkSwap(in), checkMemory(in), checkFiles(in), checkCPU()}
}

func checkFileSystem(in Inputs) Finding {
	kernel, _ := ReadKernel() // its own check tells
	disk, err := ReadFileSystem(in.DataDir)
	if err != nil {
		return unknown("file_system", err)
	}
	return judgeFileSystem(in, disk, kernel)
}

func checkSpace(in Inputs) Finding {
	disk, err := ReadFileSystem(in.DataDir)
	if err != nil {
		return unknown("disk_space", err)
	}
	return judgeSpace(in, disk)
}

func checkSync(ctx context.Context, in Inputs) Finding {
	ctx, cancel := context.WithTimeout(ctx, syncBudget)
	defer cancel()
	dir, err := existing(in.DataDir)
	if err != nil {
		return unknown("disk_sync", err)
	}
	took, err := SyncLatency(ctx, dir, syncSamples)
	if err != nil {
		return unknown("disk_sync", err)
	}
	return judgeSync(took)
}

func checkKernel() Finding {
	k, err := ReadKernel()
	if err != nil {
		return unknown("kernel", err)
	}
	return judgeKernel(k)
}

func checkClock() Finding {
	c, err := ReadClock()
	if err != nil {
		return unknown("clock", err)
	}
	return judgeClock(c)
}

func checkSwap(in Inputs) Finding {
	areas, err := ReadSwap()
	if err != nil {
		return unknown("swap", err)
	}
	group, _ := here().group() // without it no group forbids swap
	lockable, _ := mayLock()   // if that cannot be told it cannot be relied on
	return judgeSwap(in, areas, group, lockable)
}

func checkMemory(in Inputs) Finding {
	m, err := ReadMemory()
	if err != nil {
		return unknown("memory", err)
	}
	group, _ := here().group() // without it only the machine bounds
	return judgeMemory(in, m, group)
}

func checkFiles(in Inputs) Finding {
	l, _ := ReadLimits()
	return judgeFiles(in, l)
}

func checkCPU() Finding {
	l, err := ReadLimits()
	if err != nil {
		return unknown("cpu", err)
	}
	return judgeCPU(l)
}

func checkBacklog() Finding {
	n, err := ReadSoMaxConn()
	if err != nil {
		return unknown("somaxconn", err)
	}
	return judgeBacklog(n)
}
