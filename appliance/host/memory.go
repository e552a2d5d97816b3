package host

import (
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

// Memory is the machine's, in bytes.
type Memory struct {
	Total     int64
	Available int64 // without swapping
}

// ReadMemory reads /proc/meminfo.
func ReadMemory() (Memory, error) { return here().memory() }

func (h host) memory() (Memory, error) {
	text, err := h.text("proc/meminfo")
	if err != nil {
		return Memory{}, err
	}
	return parseMemory(strings.NewReader(text))
}

// parseMemory reads the text of meminfo: "MemTotal:  12345 kB".
func parseMemory(r io.Reader) (Memory, error) {
	var m Memory
	text, err := io.ReadAll(io.LimitReader(r, maxText))
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 50) // KiB: a bit fewer, so that the bytes fit
		switch {
		case err != nil:
		case f[0] == "MemTotal:":
			m.Total = n << 10
		case f[0] == "MemAvailable:":
			m.Available = n << 10
		}
	}
	if m.Total <= 0 {
		return Memory{}, fmt.Errorf("meminfo: no MemTotal in it")
	}
	return m, nil
}

// SwapArea is one line of /proc/swaps.
type SwapArea struct {
	Name string
	Size int64 // bytes
	disk bool  // memory that is written back to a disk
}

// Compressed says that the area is memory itself (zram), which ends with the power.
func (a SwapArea) Compressed() bool { return strings.HasPrefix(a.Name, "/dev/zram") && !a.disk }

// ReadSwap lists the areas that are in use. None means that no page of the process can reach a disk.
func ReadSwap() ([]SwapArea, error) { return here().swap() }

func (h host) swap() ([]SwapArea, error) {
	text, err := h.text("proc/swaps")
	if err != nil {
		return nil, err
	}
	areas, err := parseSwap(strings.NewReader(text))
	for i := range areas {
		behind, err := h.text("sys/block/" + path.Base(areas[i].Name) + "/backing_dev")
		areas[i].disk = err == nil && behind != "none"
	}
	return areas, err
}

// parseSwap reads the text of swaps: a heading, then "/dev/sda2  partition  2097148  0  -2".
func parseSwap(r io.Reader) ([]SwapArea, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxText))
	if err != nil {
		return nil, err
	}
	var out []SwapArea
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "Filename" {
			continue
		}
		if len(f) < 4 {
			return nil, fmt.Errorf("swaps: cannot read %q", clip(line))
		}
		size, err := strconv.ParseInt(f[2], 10, 50)
		if err != nil || size < 0 {
			return nil, fmt.Errorf("swaps: cannot read %q", clip(line))
		}
		out = append(out, SwapArea{Name: unescape(f[0]), Size: size << 10})
	}
	return out, nil
}
