package io.paritas.files;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

public class LatenciesTest {
    @Test
    public void mediansAreOfRequestsOfTheirSize() {
        Latencies latencies = new Latencies();
        assertEquals(0, latencies.medianNs(1000));
        for (int i = 0; i < 100; i++) {
            latencies.onRead(1000, 7);
            latencies.onRead(1 << 20, 900);
        }
        assertEquals(7, latencies.medianNs(1023));
        assertEquals(900, latencies.medianNs(1 << 20));
    }

    @Test
    public void aBudgetIsFilledByWhatIsReadAndNotBeyondItsLimit() {
        ByteBudget budget = new ByteBudget(0.1, 1000);
        assertEquals(false, budget.take(1));
        budget.onRead(2000);
        assertEquals(true, budget.take(200));
        assertEquals(false, budget.take(1));
        budget.onGrant(5000);
        assertEquals(true, budget.take(1000));
        assertEquals(false, budget.take(1));
    }
}
