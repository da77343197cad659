/* What a user calls a virtual machine, and its process: VMMs in a /proc that is made for it, and
 * libvirt's own test driver, which needs no daemon. */
#include "attach/domain.h"
#include "attach/libvirt.h"
#include "tests/unit/fake_proc.h"

TestSuite(domain, .init = make_root, .fini = remove_root);

/* A VMM `pid` with that command line, which holds zeros. */
#define MAKE(pid, line) make_qemu(pid, line, sizeof(line))

#define WEB "qemu\0-name\0guest=web\0-uuid\0AB-1"
#define MAIL "qemu\0-name\0guest=mail\0-uuid\0AB-2"
#define NAMELESS "qemu\0-M\0q35"

static struct error error;

static gp_status_t find(const char *machine, pid_t *pid)
{
	const struct domain_places places = {.proc = root, .run = root};

	error = (struct error){0};
	*pid = 0;
	return domain_find(&places, machine, pid, &error);
}

static void leads_to(const char *machine, pid_t wanted)
{
	pid_t pid;

	cr_assert_eq(find(machine, &pid), GP_OK, "%s: %s", machine, error.text);
	cr_assert_eq(pid, wanted, "%s: %d", machine, (int)pid);
}

static void fails(const char *machine, gp_status_t status, const char *text)
{
	pid_t pid;

	cr_assert_eq(find(machine, &pid), status, "%s: %s", machine, error.text);
	cr_assert(strstr(error.text, text), "%s: %s", machine, error.text);
	cr_assert_eq(pid, 0);
}

Test(domain, is_found_by_name_uuid_and_pid)
{
	MAKE("42", WEB);
	MAKE("43", MAIL);
	leads_to("web", 42);
	leads_to("ab-2", 43);
	leads_to("43", 43);
	fails("none", GP_ERR_NOT_FOUND, "no virtual machine is called 'none'");
	fails("", GP_ERR_NOT_FOUND, "called ''");
	fails("44", GP_ERR_NOT_FOUND, "no process 44");
}

Test(domain, of_two_with_one_name_neither_is_taken)
{
	MAKE("42", WEB);
	MAKE("45", WEB);
	fails("web", GP_ERR_ALREADY_EXISTS, "2 virtual machines are called 'web'");
	cr_assert(strstr(error.text, "42") && strstr(error.text, "45"), "%s", error.text);
}

/* Many more than are told by PID. */
Test(domain, of_many_with_one_name_some_are_told)
{
	char name[16];

	for (int pid = 100; pid < 112; pid++) {
		snprintf(name, sizeof(name), "%d", pid);
		MAKE(name, WEB);
	}
	fails("web", GP_ERR_ALREADY_EXISTS, "12 virtual machines");
	cr_assert(strstr(error.text, ", ..."), "%s", error.text);
}

Test(domain, a_pid_file_leads_to_a_machine_without_a_name_only)
{
	MAKE("42", WEB);
	MAKE("43", NAMELESS);
	make_directory("libvirt");
	make_directory("libvirt/qemu");
	make_file("libvirt/qemu/printer.pid", "43\n", 3);
	make_file("libvirt/qemu/stale.pid", "42", 2); /* of a domain that is gone */
	make_file("libvirt/qemu/gone.pid", "999\n", 4);
	make_file("libvirt/qemu/odd.pid", "43x\n", 4);
	leads_to("printer", 43);
	fails("stale", GP_ERR_NOT_FOUND, "called 'stale'");
	fails("gone", GP_ERR_NOT_FOUND, "called 'gone'");
	fails("odd", GP_ERR_NOT_FOUND, "called 'odd'");
	fails("../qemu/printer", GP_ERR_NOT_FOUND, "no virtual machine");
}

Test(domain, a_session_has_its_own_pid_files)
{
	struct domain_places places = {.proc = root, .run = "/nonexistent", .user_run = root};
	pid_t pid = 0;

	MAKE("43", NAMELESS);
	make_directory("libvirt");
	make_directory("libvirt/qemu");
	make_directory("libvirt/qemu/run");
	make_file("libvirt/qemu/run/printer.pid", "43", 2);
	cr_assert_eq(domain_find(&places, "printer", &pid, &error), GP_OK, "%s", error.text);
	cr_assert_eq(pid, 43);
	places.user_run = NULL;
	cr_assert_eq(domain_find(&places, "printer", &pid, &error), GP_ERR_NOT_FOUND);
}

/* A process with that command line and no descriptors of KVM's. */
static void make_emulator(const char *pid, const char *line, size_t size)
{
	char name[64];

	make_directory(pid);
	snprintf(name, sizeof(name), "%s/fd", pid);
	make_directory(name);
	snprintf(name, sizeof(name), "%s/exe", pid);
	make_link(name, "/usr/bin/qemu-system-x86_64");
	snprintf(name, sizeof(name), "%s/cmdline", pid);
	make_file(name, line, size);
}

Test(domain, one_that_is_emulated_is_told)
{
	make_emulator("50", WEB, sizeof(WEB));
	fails("web", GP_ERR_NOT_SUPPORTED, "process 50, which runs it without KVM");
}

Test(domain, one_that_may_not_be_looked_at_is_told_with_its_owner)
{
	static const char status[] =
		"Name:\tqemu\nUid:\t107\t107\t107\t107\nGid:\t107\t107\t107\t107\n";
	char path[300];

	/* Its program cannot be told either: that of its command line counts. */
	make_directory("60");
	make_file("60/cmdline", "/usr/bin/qemu-system-x86_64\0-name\0guest=mail",
		  sizeof("/usr/bin/qemu-system-x86_64\0-name\0guest=mail"));
	make_file("60/status", status, sizeof(status) - 1);
	make_directory("60/fd");
	make_directory("61");
	make_directory("61/fd");
	for (int pid = 60; pid <= 61; pid++) {
		snprintf(path, sizeof(path), "%s/%d/fd", root, pid);
		cr_assert(!chmod(path, 0));
	}
	/* Its user may list descriptors whose links not even that user may read. */
	make_directory("62");
	make_directory("62/fd");
	make_link("62/fd/3", "anon_inode:kvm-vm");
	snprintf(path, sizeof(path), "%s/62/fd", root);
	cr_assert(!chmod(path, 0444));
	cr_assert(!chmod(root, 0755));
	cr_assert(geteuid() || !seteuid(65534));
	fails("mail", GP_ERR_ACCESS_DENIED, "'mail' is process 60, which may not be looked at");
	cr_assert(strstr(error.text, "another user's (uid 107)"), "%s", error.text);
	fails("60", GP_ERR_ACCESS_DENIED, "process 60 may not be looked at");
	fails("61", GP_ERR_ACCESS_DENIED, "process 61 may not be looked at");
	fails("62", GP_ERR_ACCESS_DENIED, "process 62 may not be looked at");
	cr_assert(getuid() || !seteuid(0));
	cr_assert(!chmod(path, 0755)); /* for whoever removes it */
}

/* libvirt. */

/* What the test driver's file says of a domain; `runstate` as virDomainState has it. */
#define TEST_DOMAIN(name, uuid, runstate)                                              \
	"<domain type='test' xmlns:test='http://libvirt.org/schemas/domain/test/1.0'>" \
	"<name>" name "</name><uuid>" uuid "</uuid><memory>65536</memory>"             \
	"<os><type>hvm</type></os><test:runstate>" runstate "</test:runstate></domain>"

#define UUID(n) "6695eb01-f6a4-8304-79aa-97f2502e190" n

static const char node[] =
	"<node>" TEST_DOMAIN("web", UUID("1"), "1") TEST_DOMAIN("paused", UUID("2"), "3")
		TEST_DOMAIN("off", UUID("3"), "5") TEST_DOMAIN("crashed", UUID("4"), "6")
			TEST_DOMAIN("sleeper", UUID("5"), "7") "</node>";

static char test_uri[128];

static void make_node(void)
{
	make_file("node.xml", node, sizeof(node) - 1);
	snprintf(test_uri, sizeof(test_uri), "test://%s/node.xml", root);
}

static gp_status_t ask(const char *uri, const char *domain, struct libvirt_answer *answer)
{
	gp_status_t status;

	error = (struct error){0};
	status = libvirt_ask(&uri, 1, domain, answer, &error);
	if (status == GP_ERR_NOT_SUPPORTED)
		cr_skip_test("%s", error.text);
	return status;
}

static void is_known(const char *called, const char *name, enum libvirt_state state)
{
	struct libvirt_answer answer;

	cr_assert_eq(ask(test_uri, called, &answer), GP_OK, "%s", error.text);
	cr_assert_eq(answer.connections, 1, "%s", answer.unreachable);
	cr_assert_eq(answer.count, 1, "%s", called);
	cr_assert_str_eq(answer.domains[0].name, name);
	cr_assert_str_eq(answer.domains[0].driver, "TEST");
	cr_assert_str_eq(answer.domains[0].uri, test_uri);
	cr_assert_eq(answer.domains[0].state, state, "%s is %s", called,
		     libvirt_state_name(answer.domains[0].state));
	cr_assert_eq(answer.domains[0].id < 0, state == LIBVIRT_SHUT_OFF, "%d",
		     answer.domains[0].id);
}

Test(domain, libvirt_knows_names_uuids_ids_and_states)
{
	make_node();
	is_known("web", "web", LIBVIRT_RUNS);
	is_known(UUID("2"), "paused", LIBVIRT_PAUSED);
	is_known("1", "web", LIBVIRT_RUNS);
	is_known("off", "off", LIBVIRT_SHUT_OFF);
	is_known("crashed", "crashed", LIBVIRT_CRASHED);
	is_known("sleeper", "sleeper", LIBVIRT_SUSPENDED);
}

Test(domain, libvirt_says_no_and_why_it_cannot_say)
{
	struct libvirt_answer answer;

	cr_assert_eq(ask("test:///default", "none", &answer), GP_OK);
	cr_assert_eq(answer.connections, 1);
	cr_assert_eq(answer.count, 0);
	cr_assert_eq(ask("qemu+unix:///system?socket=/nonexistent/sock", "web", &answer), GP_OK);
	cr_assert_eq(answer.connections, 0);
	cr_assert(strstr(answer.unreachable, "/nonexistent/sock"), "%s", answer.unreachable);
	cr_assert_eq(ask("qemu+ssh://elsewhere/system", "web", &answer), GP_OK);
	cr_assert_eq(answer.connections, 0);
	cr_assert(strstr(answer.unreachable, "another host"), "%s", answer.unreachable);
}

Test(domain, another_hosts_uri_is_known_by_its_host)
{
	cr_assert(!libvirt_uri_is_remote("qemu:///system"));
	cr_assert(!libvirt_uri_is_remote("test:///default"));
	cr_assert(!libvirt_uri_is_remote("qemu+unix:///session?socket=/a@b://c/d"));
	cr_assert(!libvirt_uri_is_remote("qemu+tcp://localhost:16509/system"));
	cr_assert(!libvirt_uri_is_remote("qemu+tcp://[::1]:16509/system"));
	cr_assert(!libvirt_uri_is_remote("an-alias"));
	cr_assert(libvirt_uri_is_remote("qemu+ssh://root@host/system"));
	cr_assert(libvirt_uri_is_remote("qemu+tls://[fe80::1]/system"));
	cr_assert(libvirt_uri_is_remote("qemu://host"));
	cr_assert(libvirt_uri_is_remote("qemu://localhost.example/system"));
}

Test(domain, the_users_choice_of_a_connection_is_the_only_one)
{
	const char *uris[LIBVIRT_CONNECTIONS_MAX];

	setenv("LIBVIRT_DEFAULT_URI", "test:///default", 1);
	cr_assert_eq(libvirt_uris(uris), 1);
	cr_assert_str_eq(uris[0], "test:///default");
	unsetenv("LIBVIRT_DEFAULT_URI");
	cr_assert_eq(libvirt_uris(uris), 2);
	cr_assert_str_eq(uris[0], "qemu:///system");
	cr_assert_str_eq(uris[1], "qemu:///session");
}

static gp_status_t find_with(const char *const *uris, unsigned count, const char *machine,
			     pid_t *pid)
{
	const struct domain_places places = {
		.proc = root, .run = root, .uris = uris, .uri_count = count};
	struct libvirt_answer answer;

	ask("test:///default", "test", &answer); /* skips without libvirt */
	error = (struct error){0};
	*pid = 0;
	return domain_find(&places, machine, pid, &error);
}

static void fails_with(const char *machine, gp_status_t status, const char *text)
{
	const char *uri = test_uri;
	pid_t pid;

	cr_assert_eq(find_with(&uri, 1, machine, &pid), status, "%s: %s", machine, error.text);
	cr_assert(strstr(error.text, text), "%s: %s", machine, error.text);
	cr_assert(strstr(error.text, test_uri), "%s: %s", machine, error.text);
}

#define KNOWN "qemu\0-name\0guest=web\0-uuid\0" UUID("1")
#define PAUSED "qemu\0-name\0guest=paused\0-uuid\0" UUID("2")
#define SLEEPER "qemu\0-name\0guest=sleeper\0-uuid\0" UUID("5")
#define OTHER_OFF "qemu\0-name\0guest=off\0-uuid\0AB-3"

Test(domain, libvirts_id_leads_to_the_process_with_the_uuid)
{
	const char *uri = test_uri;
	pid_t pid;

	make_node();
	MAKE("42", KNOWN);
	MAKE("43", MAIL);
	cr_assert_eq(find_with(&uri, 1, "1", &pid), GP_OK, "%s", error.text);
	cr_assert_eq(pid, 42);
	cr_assert_eq(find_with(&uri, 1, "web", &pid), GP_OK, "%s", error.text);
	cr_assert_eq(pid, 42);
	/* One that libvirt does not know. */
	cr_assert_eq(find_with(&uri, 1, "mail", &pid), GP_OK, "%s", error.text);
	cr_assert_eq(pid, 43);
	/* A PID is one first. */
	MAKE("1", MAIL);
	cr_assert_eq(find_with(&uri, 1, "1", &pid), GP_OK, "%s", error.text);
	cr_assert_eq(pid, 1);
}

Test(domain, a_state_in_which_nothing_runs_is_told)
{
	const char *uri = test_uri;
	pid_t pid;

	make_node();
	MAKE("42", PAUSED);
	MAKE("43", SLEEPER);
	fails_with("paused", GP_ERR_BAD_STATE, "'virsh resume paused'");
	fails_with("sleeper", GP_ERR_BAD_STATE, "'virsh dompmwakeup sleeper'");
	fails_with("off", GP_ERR_NOT_FOUND, "'off' is shut off");
	/* Of libvirt's it is off; the one that runs is meant. */
	MAKE("44", OTHER_OFF);
	cr_assert_eq(find_with(&uri, 1, "off", &pid), GP_OK, "%s", error.text);
	cr_assert_eq(pid, 44);
}

Test(domain, one_of_libvirts_and_a_stranger_of_that_name_are_two)
{
	const char *uri = test_uri;
	pid_t pid;

	make_node();
	MAKE("42", KNOWN);
	MAKE("43", WEB);
	cr_assert_eq(find_with(&uri, 1, "web", &pid), GP_ERR_ALREADY_EXISTS, "%s", error.text);
	cr_assert_eq(find_with(&uri, 1, UUID("1"), &pid), GP_OK, "%s", error.text);
	cr_assert_eq(pid, 42);
}

Test(domain, one_of_another_hypervisor_is_told)
{
	make_node();
	fails_with("web", GP_ERR_NOT_SUPPORTED, "of libvirt's driver TEST");
}

Test(domain, a_daemon_that_does_not_answer_is_told_when_nothing_is_found)
{
	const char *const uris[] = {"qemu+unix:///system?socket=/nonexistent/sock",
				    "qemu+unix:///session?socket=/nonexistent/other"};
	pid_t pid;

	MAKE("42", WEB);
	cr_assert_eq(find_with(uris, 2, "web", &pid), GP_OK, "%s", error.text);
	cr_assert_eq(find_with(uris, 2, "none", &pid), GP_ERR_NOT_FOUND);
	cr_assert(strstr(error.text, "libvirt does not answer: qemu+unix:///system"), "%s",
		  error.text);
}
