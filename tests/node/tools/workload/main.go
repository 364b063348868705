// What the containers of the tests run: it waits, burns cpu, holds memory, and answers requests that measure how long answers take.
//
//	workload [-listen 127.0.0.1:8080] [-burn 2] [-hold 64]
//	workload -limits [...]                        print its own cgroup's values as JSON before all else; alone: and end
//
//	POST /hold?mib=512                            hold so much from now on
//	POST /burn?cores=2                            burn so many cores from now on
//	GET  /work?rounds=200                         hash so many blocks of 4 KiB, then answer
//	GET  /latency?for=5s&every=10ms&rounds=200    ask /work at a steady pace; {"count", "p50_us", "p99_us", "max_us"}
//
// Latency counts from the instant at which a request was due, so one that waits behind a slow one is slow too.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	page  = 4096
	spare = 4 // threads beside those that burn, so that it answers while it burns
)

type server struct {
	mutex sync.Mutex
	held  [][]byte
	stop  context.CancelFunc // ends the burning that goes on
}

func (s *server) hold(mib int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for len(s.held) < mib {
		block := make([]byte, 1<<20)
		for at := 0; at < len(block); at += page {
			block[at] = 1
		}
		s.held = append(s.held, block)
	}
	s.held = s.held[:mib]
}

func (s *server) burn(cores int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.stop != nil {
		s.stop()
	}
	runtime.GOMAXPROCS(cores + spare)
	until, stop := context.WithCancel(context.Background())
	s.stop = stop
	for range cores {
		go func() {
			for until.Err() == nil {
				work(100)
			}
		}()
	}
}

func work(rounds int) {
	var block [page]byte
	for range rounds {
		sum := sha256.Sum256(block[:])
		copy(block[:], sum[:])
	}
}

type latency struct {
	Count  int   `json:"count"`
	Failed int   `json:"failed"`
	P50us  int64 `json:"p50_us"`
	P99us  int64 `json:"p99_us"`
	MaxUs  int64 `json:"max_us"`
}

func measure(address string, length, every time.Duration, rounds int) latency {
	count := int(length / every)
	took := make([]time.Duration, count)
	url := fmt.Sprintf("http://%s/work?rounds=%d", address, rounds)
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	var asked sync.WaitGroup
	begun := time.Now()
	for number := range count {
		due := begun.Add(time.Duration(number) * every)
		time.Sleep(time.Until(due))
		asked.Add(1)
		go func() {
			defer asked.Done()
			answer, err := client.Get(url)
			if err != nil {
				return
			}
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			took[number] = time.Since(due)
		}()
	}
	asked.Wait()
	failed := 0
	answered := slices.DeleteFunc(took, func(each time.Duration) bool { return each == 0 })
	failed = count - len(answered)
	if len(answered) == 0 {
		return latency{Failed: failed}
	}
	slices.Sort(answered)
	at := func(share float64) int64 { return answered[int(share*float64(len(answered)-1))].Microseconds() }
	return latency{len(answered), failed, at(0.5), at(0.99), at(1)}
}

func number(request *http.Request, name string, otherwise int) int {
	if found, err := strconv.Atoi(request.URL.Query().Get(name)); err == nil && found >= 0 {
		return found
	}
	return otherwise
}

func duration(request *http.Request, name string, otherwise time.Duration) time.Duration {
	if found, err := time.ParseDuration(request.URL.Query().Get(name)); err == nil && found > 0 {
		return found
	}
	return otherwise
}

// The values of this process's cgroup (v1), as the container sees them.
func limits() map[string]string {
	found := map[string]string{}
	for name, file := range map[string]string{
		"cpu.shares":            "/sys/fs/cgroup/cpu/cpu.shares",
		"cpu.cfs_quota_us":      "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
		"cpuset.cpus":           "/sys/fs/cgroup/cpuset/cpuset.cpus",
		"memory.limit_in_bytes": "/sys/fs/cgroup/memory/memory.limit_in_bytes",
		"oom_score_adj":         "/proc/self/oom_score_adj",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			text = []byte(err.Error())
		}
		found[name] = strings.TrimSpace(string(text))
	}
	return found
}

func main() {
	if slices.Contains(os.Args[1:], "-limits") {
		json.NewEncoder(os.Stdout).Encode(limits())
		if len(os.Args) == 2 {
			return
		}
	}
	flag.Bool("limits", false, "print the values of its own cgroup first")
	listen := flag.String("listen", "", "host:port to answer requests on")
	cores := flag.Int("burn", 0, "cores to burn")
	mib := flag.Int("hold", 0, "MiB to hold")
	flag.Parse()

	var state server
	state.hold(*mib)
	if *cores > 0 {
		state.burn(*cores)
	}
	if *listen != "" {
		http.HandleFunc("POST /hold", func(_ http.ResponseWriter, request *http.Request) { state.hold(number(request, "mib", 0)) })
		http.HandleFunc("POST /burn", func(_ http.ResponseWriter, request *http.Request) { state.burn(number(request, "cores", 0)) })
		http.HandleFunc("GET /work", func(_ http.ResponseWriter, request *http.Request) { work(number(request, "rounds", 200)) })
		http.HandleFunc("GET /latency", func(answer http.ResponseWriter, request *http.Request) {
			length, every := duration(request, "for", 5*time.Second), duration(request, "every", 10*time.Millisecond)
			json.NewEncoder(answer).Encode(measure(*listen, length, every, number(request, "rounds", 200)))
		})
		go func() { log.Fatal(http.ListenAndServe(*listen, nil)) }()
	}
	// The first process of a container gets only the signals for which it has a handler.
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
}
