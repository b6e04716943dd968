# What the programs of this folder share: a line for each thing that was tried, and writing and reading while a node dies.

require "securerandom"
require "timeout"

MODE = ARGV[0]
BASE, NODES, VICTIM = ARGV[1, 3].map { |word| Integer(word) }
# Keys of one run differ from those of all others.
RUN = SecureRandom.hex(4)
OFFSETS = { "any-key" => 0, "cluster" => 1_000, "memcached" => 2_000 }.freeze
# Longest wait for anything, and keys and pause of a client while a node dies.
TIMEOUT_S = 10
KEYS = 40
PAUSE_S = 0.005
LINES = Mutex.new
GEMS = File.expand_path("../../../target/clients/ruby", __dir__)
Gem.use_paths(GEMS, [GEMS, *Gem.default_path])
File.readlines(File.expand_path("gems.txt", __dir__), chomp: true).each { |named| gem(*named.split) }

def port(kind, node = 0) = BASE + OFFSETS.fetch(kind) + node

# A key that no other check has.
def key(name) = "#{RUN}:#{Trial.checks}:#{name}"

def equal(found, wanted)
  raise "#{found.inspect} instead of #{wanted.inspect}" unless found == wanted
end

# Polls until the condition holds.
def till
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + TIMEOUT_S
  until yield
    raise "not within #{TIMEOUT_S} s" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

    sleep 0.01
  end
end

def line(*words)
  text = words.map { |word| word.to_s.split.join(" ")[0, 400] }.join("\t")
  LINES.synchronize do
    $stdout.puts text
    $stdout.flush
  end
end

# Of one client: `check` prints whether something works, `ride` what happens while a node dies.
class Trial
  class << self
    attr_accessor :checks
  end
  self.checks = 0

  def initialize(client, version)
    @client = client
    @version = version
  end

  def check(kind, what, &work)
    return unless MODE == "work"

    Trial.checks += 1
    Timeout.timeout(2 * TIMEOUT_S, &work)
    line("check", @client, @version, kind, what, "ok", "")
  rescue StandardError => e
    line("check", @client, @version, kind, what, "failed", "#{e.class}: #{e.message}")
  end

  # `ways`: how a client is connected, and its two lambdas, `put` and `get`.
  def ride(ways)
    return unless MODE == "ride"

    line("riders", @client, @version, *ways.keys)
    @ended = false
    threads = ways.map { |how, (put, get)| Thread.new { ride_one(how, put, get) } }
    $stdin.read
    @ended = true
    threads.each { |thread| thread.join(TIMEOUT_S) }
  end

  private

  def ride_one(how, put, get)
    # What a key may hold, by its number. A key whose write failed is not used again: the write may still come.
    holds = {}
    names = {}
    (0..).each do |count|
      sleep PAUSE_S
      return if @ended

      number = count % KEYS
      name = names[number] ||= key("#{@client} #{how} #{count}".tr(" ", "-"))
      if holds.key?(number)
        found = one(how) { get.call(name) }
        line("op", @client, how, 0, 0, "wrong: #{name} has #{found[0]} instead of #{holds[number]}") if found && found[0] != holds[number]
      end
      if one(how) { put.call(name, "v#{count}") }
        holds[number] = "v#{count}"
      else
        holds.delete(number)
        names.delete(number)
      end
    end
  end

  # Prints what one operation did. Returns its result in an array, or nothing after an error.
  def one(how)
    start = now_ms
    result = [yield]
    line("op", @client, how, start, now_ms, "ok")
    result
  rescue StandardError => e
    line("op", @client, how, start, now_ms, "#{e.class}: #{e.message}")
    nil
  end

  def now_ms = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
end
