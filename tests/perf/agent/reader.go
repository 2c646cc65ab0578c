// Reads the files named on standard input, one a line, again and again, as an agent in Go does: open, read, close. For
// each line of that list a number is parsed where there is one. Prints the CPU time of a round in milliseconds: the
// median over ROUNDS.
//
// Usage: reader ROUNDS <paths
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"sort"
	"strconv"
	"syscall"
)

func cpuMilliseconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	total := usage.Utime.Nano() + usage.Stime.Nano()
	return float64(total) / 1e6
}

func main() {
	rounds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	var paths []string
	for scanner := bufio.NewScanner(os.Stdin); scanner.Scan(); {
		paths = append(paths, scanner.Text())
	}
	sum, unread := int64(0), 0
	costs := make([]float64, 0, rounds)
	for round := 0; round < rounds; round++ {
		before := cpuMilliseconds()
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				unread++
				continue
			}
			for _, word := range bytes.Fields(content) {
				if number, err := strconv.ParseInt(string(word), 10, 64); err == nil {
					sum += number
				}
			}
		}
		costs = append(costs, cpuMilliseconds()-before)
	}
	sort.Float64s(costs)
	fmt.Printf("%.3f %d %d\n", costs[len(costs)/2], len(paths), unread/rounds)
}
