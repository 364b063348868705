// The first process of the tests' guest: it makes the guest's root folder of the host's files, and runs one program.
//
// Its initial file system holds, beside it:
//
//	/modules/NN-name.ko   kernel modules, loaded in the order of their names
//	/files/               files that lie over the host's
//	/program.json         {"argv": [...], "env": [...], "folder": "...", "first": false}
//
// The host's files come by virtiofs, read-only; all that the guest writes is in memory. A program that is `first`
// becomes process 1 itself. Any other one is waited for, its exit status is printed, and the guest is switched off.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"unsafe"
)

const (
	finitModule = 313 // of x86-64, the only architecture whose kernel is fetched
	root        = "/root"
)

type program struct {
	Argv   []string
	Env    []string
	Folder string
	First  bool
}

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

// Before the switch: the kernel's own, the host's files, and both below one folder.
var early = []mount{
	{"proc", "/proc", "proc", 0, ""},
	{"host", "/host", "virtiofs", syscall.MS_RDONLY, ""},
	{"written", "/written", "tmpfs", 0, "mode=755"},
}

var late = []mount{
	{"overlay", root, "overlay", 0, "lowerdir=/files:/host,upperdir=/written/upper,workdir=/written/work"},
	{"proc", root + "/proc", "proc", 0, ""},
	{"sysfs", root + "/sys", "sysfs", 0, ""},
	{"devtmpfs", root + "/dev", "devtmpfs", 0, ""},
	{"tmpfs", root + "/dev/shm", "tmpfs", 0, "mode=1777"},
	{"tmpfs", root + "/run", "tmpfs", 0, "mode=755"},
	{"tmpfs", root + "/tmp", "tmpfs", 0, "mode=1777"},
	{"cgroup2", root + "/sys/fs/cgroup", "cgroup2", 0, ""},
}

func main() {
	if err := run(); err != nil {
		fmt.Printf("koord-guest: failed: %v\n", err)
	}
	syscall.Sync()
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	text, err := os.ReadFile("/program.json")
	if err != nil {
		return err
	}
	var wanted program
	if err := json.Unmarshal(text, &wanted); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	if err := makeRoot(); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	if err := os.Chdir(wanted.Folder); err != nil {
		return err
	}
	if wanted.First {
		return syscall.Exec(wanted.Argv[0], wanted.Argv, wanted.Env)
	}
	command := exec.Command(wanted.Argv[0], wanted.Argv[1:]...)
	command.Env, command.Stdout, command.Stderr = wanted.Env, os.Stdout, os.Stdout
	if err := command.Run(); command.ProcessState == nil {
		return err
	}
	fmt.Printf("koord-guest: exited %d\n", command.ProcessState.ExitCode())
	return nil
}

func loadModules() error {
	files, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	slices.Sort(files)
	nothing := []byte{0}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		_, _, code := syscall.Syscall(finitModule, file.Fd(), uintptr(unsafe.Pointer(&nothing[0])), 0)
		file.Close()
		if code != 0 && code != syscall.EEXIST {
			return fmt.Errorf("module %s: %w", name, code)
		}
	}
	return nil
}

func makeRoot() error {
	for _, each := range early {
		if err := each.do(); err != nil {
			return err
		}
	}
	for _, folder := range []string{"/written/upper", "/written/work", "/files"} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	for _, each := range late {
		if err := each.do(); err != nil {
			return err
		}
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := syscall.Mount(".", "/", "", syscall.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move of the root: %w", err)
	}
	if err := syscall.Chroot("."); err != nil {
		return err
	}
	return os.Chdir("/")
}

func (each mount) do() error {
	if err := os.MkdirAll(each.target, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(each.source, each.target, each.kind, each.flags, each.data); err != nil {
		return fmt.Errorf("mount of %s: %w", each.target, err)
	}
	return nil
}

// loopbackUp sets the flag UP of the interface lo.
func loopbackUp() error {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	var request struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], "lo")
	request.flags = syscall.IFF_UP
	_, _, code := syscall.Syscall(syscall.SYS_IOCTL, uintptr(socket), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request)))
	if code != 0 {
		return fmt.Errorf("loopback: %w", code)
	}
	return nil
}
