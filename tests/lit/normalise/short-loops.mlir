// RUN: %exla-opt %s --passes=normalise | filecheck %s

// A loop of one trip is its body, one that never runs is its start; the inner loop is known to run once when the outer
// one is gone. Two trips stay a loop, and so does a loop of which it is not known how often it runs.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32>, %[[N:[^:]*]]: tensor<i32>
// CHECK-DAG: %[[TWO:.*]] = stablehlo.constant dense<2> : tensor<i32>
// CHECK: %[[ONCE:.*]] = stablehlo.cosine %[[X]]
// CHECK-NOT: stablehlo.exponential
// CHECK: %[[TWICE:.*]]:2 = stablehlo.while(
// CHECK: stablehlo.compare LT, %{{.*}}, %[[TWO]]
// CHECK: stablehlo.sine
// CHECK: stablehlo.while(
// CHECK: stablehlo.compare LT, %{{.*}}, %[[N]]
// CHECK: return %[[ONCE]], %[[X]], %[[TWICE]]#1

func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %once:2 = stablehlo.while(%i = %one, %a = %x) : tensor<i32>, tensor<4xf32>
    cond {
      %go = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %inner:2 = stablehlo.while(%j = %i, %b = %a) : tensor<i32>, tensor<4xf32>
        cond {
          %go = stablehlo.compare LT, %j, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %go : tensor<i1>
        } do {
          %next = stablehlo.add %j, %one : tensor<i32>
          %c = stablehlo.cosine %b : tensor<4xf32>
          stablehlo.return %next, %c : tensor<i32>, tensor<4xf32>
        }
      %next = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %next, %inner#1 : tensor<i32>, tensor<4xf32>
    }
  %never:2 = stablehlo.while(%i = %two, %a = %x) : tensor<i32>, tensor<4xf32>
    cond {
      %go = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %b = stablehlo.exponential %a : tensor<4xf32>
      stablehlo.return %next, %b : tensor<i32>, tensor<4xf32>
    }
  %twice:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<4xf32>
    cond {
      %go = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %b = stablehlo.sine %a : tensor<4xf32>
      stablehlo.return %next, %b : tensor<i32>, tensor<4xf32>
    }
  %unknown:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<4xf32>
    cond {
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %b = stablehlo.tanh %a : tensor<4xf32>
      stablehlo.return %next, %b : tensor<i32>, tensor<4xf32>
    }
  return %once#1, %never#1, %twice#1, %unknown#1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
