/* Unwinds a live guest of QEMU at many random stops, through its memory file, and counts how the
 * stacks end. Started by live-stacks.sh:
 *
 *   live_stacks MEMORY-FILE QMP-SOCKET STOPS SEED
 *
 * Exit code 1 when less than 99 % of the kernel's stacks are complete: down to the registers that
 * the program saved on entry, or to the start of the thread. Others are printed. */
#include "tests/stack_ends.h"
#include "tests/image_tasks.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#define DEPTH 128

static FILE *qmp_in;
static FILE *qmp_out;

/* Sends a command and gives the line that answers it. */
static bool command(const char *text, char *answer, size_t size)
{
	fprintf(qmp_out, "%s\n", text);
	fflush(qmp_out);
	while (fgets(answer, (int)size, qmp_in)) {
		if (strncmp(answer, "{\"return\"", 9) == 0)
			return true;
		if (strstr(answer, "\"error\"")) {
			fprintf(stderr, "QEMU: %s", answer);
			return false;
		}
	}
	return false;
}

static bool monitor(const char *text, char *answer, size_t size)
{
	char line[256];

	snprintf(line, sizeof(line),
		 "{\"execute\":\"human-monitor-command\",\"arguments\":{\"command-line\":\"%s\"}}",
		 text);
	return command(line, answer, size);
}

/* Turns \r\n of a JSON string into newlines, in place. */
static void unescape(char *text)
{
	char *to = text;

	for (char *from = text; *from; from++) {
		if (*from != '\\') {
			*to++ = *from;
			continue;
		}
		from++;
		if (*from == 'n')
			*to++ = '\n';
		else if (*from != 'r')
			*to++ = *from;
		if (!*from)
			break;
	}
	*to = '\0';
}

static bool read_registers(struct image *image)
{
	static char answer[1 << 16];
	FILE *file;
	bool found;

	if (!monitor("info registers -a", answer, sizeof(answer)))
		return false;
	unescape(answer);
	file = fmemopen(answer, strlen(answer), "r");
	found = file && image_parse_registers(image, file);
	if (file)
		fclose(file);
	return found;
}

struct counts {
	unsigned samples;
	unsigned kernel;
	unsigned entry; /* of these, in the entry code */
	unsigned user_registers;
	unsigned roots;
	unsigned incomplete;
	unsigned system_calls; /* user code entered by SYSCALL, as far as its page can be read */
	unsigned behind_syscall;
};

static void print_stack(const struct image_kernel *self, const struct guest_cpu *cpu,
			const uint64_t *pcs, const struct unwind_stack *stack)
{
	printf("incomplete: %s; rsp %#" PRIx64 " rbp %#" PRIx64 " rdi %#" PRIx64 " cr3 %#" PRIx64
	       "\n",
	       stack_end_string(stack->end), cpu->gpr[GUEST_RSP], cpu->gpr[GUEST_RBP],
	       cpu->gpr[GUEST_RDI], cpu->cr3);
	for (unsigned i = 0; i < stack->count; i++) {
		struct symbol symbol = {.name = "?"};

		symbol_table_find(&self->symbols, pcs[i], &symbol);
		printf("  %#" PRIx64 " %s+%#" PRIx64 "\n", pcs[i], symbol.name,
		       pcs[i] - symbol.start);
	}
}

/* Stacks that came through the SYSCALL entry go on behind such an instruction, but for those that
 * execve() and signals sent elsewhere meanwhile. */
static void check_user_address(const struct image_kernel *self, const struct guest_cpu *cpu,
			       const uint64_t *pcs, const struct unwind_stack *stack,
			       struct counts *counts)
{
	struct address_space space = address_space_of(cpu);
	struct symbol symbol;
	uint8_t code[2];

	if (!symbol_table_find(&self->symbols, pcs[stack->user_frame - 1], &symbol) ||
	    (strncmp(symbol.name, "entry_SYS", 9) != 0 &&
	     strcmp(symbol.name, "syscall_return_via_sysret") != 0) ||
	    guest_read_virtual(&space, NULL, &self->image.memory.memory,
			       gva(pcs[stack->user_frame] - 2), code, 2) != TRANSLATE_OK)
		return;
	counts->system_calls++;
	/* syscall, sysenter, int $0x80 */
	counts->behind_syscall += (code[0] == 0x0f && (code[1] == 0x05 || code[1] == 0x34)) ||
				  (code[0] == 0xcd && code[1] == 0x80);
}

static void look(const struct image_kernel *self, const struct guest_cpu *cpu,
		 struct counts *counts)
{
	uint64_t pcs[DEPTH];
	struct unwind_stack stack =
		guest_unwind(&self->image.memory.memory, linux_stack_unwind_kernel(self->stack),
			     cpu, pcs, DEPTH);
	uint64_t entry = image_symbol(self, "__entry_text_start");
	uint64_t entry_end = image_symbol(self, "__entry_text_end");

	counts->samples++;
	if (cpu->cpl == 3)
		return;
	counts->kernel++;
	counts->entry += cpu->rip >= entry && cpu->rip < entry_end;
	if (stack.user_frame < stack.count) {
		counts->user_registers++;
		check_user_address(self, cpu, pcs, &stack, counts);
		if (getenv("VERBOSE") && cpu->rip >= entry && cpu->rip < entry_end)
			print_stack(self, cpu, pcs, &stack);
		return;
	}
	if (stack.end == STACK_END_ROOT) {
		counts->roots++;
		return;
	}
	counts->incomplete++;
	print_stack(self, cpu, pcs, &stack);
}

static void pause_for(unsigned microseconds)
{
	struct timespec time = {.tv_nsec = microseconds * 1000L};

	nanosleep(&time, NULL);
}

static bool open_guest(struct image_kernel *self, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	void *bytes;

	if (fd < 0 || fstat(fd, &status) < 0)
		return false;
	bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (bytes == MAP_FAILED)
		return false;
	self->image.memory = buffer_memory_over(bytes, (uint64_t)status.st_size);
	return true;
}

static bool connect_qmp(const char *path)
{
	static char answer[4096];
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return false;
	qmp_in = fdopen(fd, "r");
	qmp_out = fdopen(dup(fd), "w");
	return qmp_in && qmp_out &&
	       command("{\"execute\":\"qmp_capabilities\"}", answer, sizeof(answer));
}

int main(int count, char **arguments)
{
	static char answer[1 << 16];
	struct image_kernel self = {0};
	struct counts counts = {0};
	struct error error = {0};
	unsigned stops;
	unsigned complete;

	if (count != 5) {
		fprintf(stderr, "usage: live_stacks MEMORY-FILE QMP-SOCKET STOPS SEED\n");
		return 2;
	}
	stops = (unsigned)atoi(arguments[3]);
	srandom((unsigned)atoi(arguments[4]));
	if (!open_guest(&self, arguments[1]) || !connect_qmp(arguments[2]) ||
	    !command("{\"execute\":\"stop\"}", answer, sizeof(answer)) ||
	    !read_registers(&self.image) || !image_kernel_prepare(&self, &error)) {
		fprintf(stderr, "live_stacks: the guest cannot be looked at: %s\n", error.text);
		return 2;
	}
	image_add_modules(&self);
	/* Blocks of one instruction, so that stops fall on any of them. */
	if (!monitor("singlestep on", answer, sizeof(answer)))
		return 2;
	for (unsigned i = 0; i < stops; i++) {
		/* Now and then an NMI, and a stop soon after it. */
		bool nmi = i % 4 == 3;

		if (nmi && !command("{\"execute\":\"inject-nmi\"}", answer, sizeof(answer)))
			return 2;
		if (!command("{\"execute\":\"cont\"}", answer, sizeof(answer)))
			return 2;
		pause_for(nmi ? (unsigned)random() % 200 : (unsigned)random() % 5000);
		if (!command("{\"execute\":\"stop\"}", answer, sizeof(answer)) ||
		    !read_registers(&self.image))
			return 2;
		for (unsigned cpu = 0; cpu < self.image.cpu_count; cpu++)
			look(&self, &self.image.cpus[cpu], &counts);
	}
	command("{\"execute\":\"quit\"}", answer, sizeof(answer));
	complete = counts.user_registers + counts.roots;
	printf("%u samples, %u in the kernel (%u in its entry code): %u complete (%.2f %%), %u of "
	       "them to the program, %u to the thread's start\n",
	       counts.samples, counts.kernel, counts.entry, complete,
	       counts.kernel ? 100.0 * complete / counts.kernel : 0.0, counts.user_registers,
	       counts.roots);
	printf("%u of %u addresses of programs in a system call are behind one\n",
	       counts.behind_syscall, counts.system_calls);
	image_kernel_close(&self);
	return counts.kernel == 0 || complete * 100 < counts.kernel * 99;
}
